"""The checks of `gradmarket doctor`: settings, data folder, keys, database, and each part of a running service."""

import os
import shutil
import socket
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
from pydantic import ValidationError
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from gradmarket.market.fields import first_fault
from gradmarket.network.clocked import ClockedTransport, UntrustedCertificate
from requester.settings import RequesterSettings
from requester.store.session import open_engine

LEAST_FREE: Final = 1 << 30
ANSWER_S: Final = 20.0
REDIS_PORT: Final = 6379
PARTS: Final = {
    "database": "look for a full disk, or a database that is down; then `gradmarket doctor` again",
    "blobs": "look for a full disk, or a folder or bucket that is gone or not the service's to write",
    "chain": "look whether the node at GRADMARKET_RPC answers and is the chain of deployment.json",
}
"""A part of `/v1/ready`, and the remedy if it fails."""


@dataclass(frozen=True)
class CheckResult:
    """The result of one check; `fix` is empty if nothing is wrong."""

    name: str
    detail: str
    fix: str = ""


def check_data_folder(path: Path) -> CheckResult:
    nearest = _find_existing_folder(path)
    if nearest.is_dir() and os.access(nearest, os.W_OK):
        return CheckResult("data folder", str(path.absolute()))
    return CheckResult("data folder", f"{nearest} cannot be written", "name another one with --data or GRADMARKET_DATA")


def check_disk(path: Path) -> CheckResult:
    free = shutil.disk_usage(_find_existing_folder(path)).free
    space = f"{free / 2**30:.1f} GiB free"
    return CheckResult(
        "disk", space, "" if free >= LEAST_FREE else "free some space: blobs and rows need at least 1 GiB"
    )


def _find_existing_folder(path: Path) -> Path:
    """Returns the folder itself, or the existing folder in which it would be made."""
    return next(part for part in (path.absolute(), *path.absolute().parents) if part.exists())


def check_key_modes(path: Path) -> CheckResult:
    """Checks that only the owner may read the service's keys: a reader of one can spend its money."""
    paths = sorted((path / "keys").glob("*"))
    open_ = [key for key in paths if stat.S_IMODE(key.stat().st_mode) & 0o077]
    if open_:
        names = ", ".join(key.name for key in open_)
        return CheckResult("keys", f"others may read {names}", f"chmod 600 {' '.join(str(key) for key in open_)}")
    return CheckResult("keys", f"{len(paths)}, their owner's alone" if paths else "none yet; the service makes them")


def load_settings_or_fault() -> RequesterSettings | CheckResult:
    """Returns the settings from the environment, or their first fault."""
    try:
        return RequesterSettings()
    except ValidationError as error:
        field, fault = first_fault(error, "gradmarket")
        name = field.replace(".", "_").upper()
        return CheckResult("settings", f"{name}: {fault}", f"set {name} anew; `gradmarket settings` lists them all")


def check_database(settings: RequesterSettings, path: Path) -> CheckResult:
    if settings.database is not None:
        url = settings.database_url
        engine = open_engine(url)
        address = engine.url.render_as_string(hide_password=True)
        try:
            with engine.connect() as connection:
                connection.execute(text("SELECT 1"))
        except SQLAlchemyError as error:
            detail = str(getattr(error, "orig", None) or error).splitlines()[0]
            return CheckResult("database", f"{address}: {detail}", "start PostgreSQL, or set GRADMARKET_DATABASE anew")
        finally:
            engine.dispose()
        return CheckResult("database", address)
    file = path / "gradmarket.sqlite"
    if not file.exists():
        return CheckResult("database", "none yet; the service makes it")
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as rows:
            (result,) = rows.execute("PRAGMA quick_check").fetchone()
    except sqlite3.Error as error:
        result = str(error)
    fix = "" if result == "ok" else "come back from a copy: `gradmarket restore`, see docs/operations.md"
    return CheckResult("database", f"{file}: {result}", fix)


def check_broker(settings: RequesterSettings) -> Iterator[CheckResult]:
    """Checks Redis if the stages run in Celery."""
    if settings.stages != "celery" or settings.broker is None:
        return
    address = urlsplit(settings.broker.get_secret_value())
    location = (address.hostname or "127.0.0.1", address.port or REDIS_PORT)
    try:
        socket.create_connection(location, timeout=5).close()
    except OSError as error:
        detail = f"{location[0]}:{location[1]}: {error.strerror or error}"
        yield CheckResult("broker", detail, "start Redis, or set GRADMARKET_BROKER anew")
    else:
        yield CheckResult("broker", f"{location[0]}:{location[1]} answers")


def check_service_parts(url: str) -> list[CheckResult]:
    """Checks the service at the address; returns each part of it that fails."""
    try:
        with httpx.Client(trust_env=False, transport=ClockedTransport(), timeout=ANSWER_S) as http:
            answer = http.get(f"{url.rstrip('/')}/v1/ready")
        states: Mapping[str, str] = answer.json()
        troubled = {name: states[name] for name in PARTS if states[name] != "ok"}
    except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
        why = str(error) if isinstance(error, UntrustedCertificate) else type(error).__name__
        detail = f"{url} does not answer ({why})"
        return [CheckResult("service", detail, "start the service with `gradmarket serve`, or look into its log")]
    if not troubled:
        return [CheckResult("service", f"{url} is ready")]
    return [CheckResult(f"service's {name}", detail, PARTS[name]) for name, detail in troubled.items()]


def check_auditor(settings: RequesterSettings, folder: Path) -> Iterator[CheckResult]:
    """Checks the last message of the service's own auditor, if there is one."""
    log_path = folder / "auditor.log"
    if settings.auditor == "none":
        yield CheckResult("auditor", "the service runs none (GRADMARKET_AUDITOR)")
    elif log_path.exists():
        lines = log_path.read_text(errors="replace").strip().splitlines()
        last = ([line for line in lines if not line.startswith("fix: ")] or ["it starts"])[-1]
        wrong = "look into " + str(log_path) if "rror" in last else ""
        yield CheckResult("auditor", last[:300], wrong)
