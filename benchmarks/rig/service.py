"""A service of the benchmark's own, in processes of its own, and their CPU time."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from pgserver.postgres_server import PostgresServer, get_server

from benchmarks.rig.cpu import own_cpu_s, tree_cpu_s
from benchmarks.rig.patience import PATIENCE_S
from contracts.local import LocalChain
from gradmarket.market import signing
from gradmarket.market.wire import sign_in

COUNTS = "counts.json"
ASKING = httpx.Client(timeout=PATIENCE_S)
"""One for all: making a client takes longer than the service's answer, on the same cores."""
JOB: dict[str, Any] = {
    "name": "control plane",
    "model": {"architecture": "mlp", "arguments": {"hidden": [8]}},
    "data": {"ready": "digits"},
    "step": {"rows": 32},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "rounds": 1,
    "replication": {"name": "fixed"},
    "price": "1000000000",
    "budget": "100000000000000",
    "deadlines": {"lease_s": 600, "wave_s": 600, "upload_s": 600},
}
SETTINGS = {
    "GRADMARKET_AUDITOR": "none",
    "GRADMARKET_SETTLE_EVERY_S": "3600",
    "GRADMARKET_SETTLE_GRADIENTS": "4000",
    "GRADMARKET_RESERVE_AHEAD": "2000",
    "GRADMARKET_TOKEN_RATE": "1000000",
    "GRADMARKET_WALLET_RATE": "1000000",
}
"""One gradient after another, without a settlement in the middle."""


@dataclass(frozen=True)
class Service:
    """`database`: the server's process, where there is one besides the service."""

    process: psutil.Process
    url: str
    token: str
    domain: signing.Domain
    folder: Path
    database: psutil.Process | None
    address: str

    def cpu_s(self) -> float:
        """CPU seconds of the service and its database so far, the database's ended children included."""
        return own_cpu_s(self.process) + (tree_cpu_s(self.database) if self.database else 0.0)

    def own_cpu_s(self) -> float:
        """CPU seconds of the service alone so far, to the nanosecond: the kernel's ticks are too coarse.

        The clock of another process is `clock_getcpuclockid(3)`, which on Linux is its number and these two bits.
        """
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def counts(self) -> dict[str, dict[str, int]]:
        """Statements and transactions since the last call, by caller; of a counted service."""
        file = self.folder / COUNTS
        file.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR1)
        while not file.exists():
            time.sleep(0.02)
        found: dict[str, dict[str, int]] = json.loads(file.read_text())
        return found

    @property
    def headers(self) -> dict[str, str]:
        """The requester's."""
        return {"Authorization": f"Bearer {self.token}"}

    def get(self, path: str) -> dict[str, Any]:
        """Returns the requester's answer from /v1/`path`."""
        answer = ASKING.get(f"{self.url}/v1/{path}", headers=self.headers)
        answer.raise_for_status()
        return dict(answer.json())

    def rows(self, query: str, job: str) -> list[tuple[Any, ...]]:
        """Returns the rows that a query with the job as its parameter finds in the service's SQLite."""
        path = self.address.removeprefix("sqlite:///")
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return database.execute(query, (job,)).fetchall()

    def act(self, job: str, action: str) -> None:
        """Pauses, resumes or cancels a job."""
        httpx.post(f"{self.url}/v1/jobs/{job}/{action}", headers=self.headers, timeout=PATIENCE_S).raise_for_status()

    def post(self, latest_s: float = PATIENCE_S, **changes: Any) -> str:
        """A job, funded and running with its tasks open; within `latest_s` seconds, else TimeoutError."""
        answer = httpx.post(f"{self.url}/v1/jobs", json=JOB | changes, headers=self.headers, timeout=latest_s)
        if answer.is_error:
            raise RuntimeError(f"the job was refused: {answer.text}")
        job = str(answer.json()["id"])
        until = time.monotonic() + latest_s
        while not self.get(f"jobs/{job}/rounds")["items"]:
            if time.monotonic() > until:
                raise TimeoutError(str(self.get(f"jobs/{job}")))
            time.sleep(0.1)
        return job


@contextmanager
def service(shared: bool, counted: bool = False, settings: Mapping[str, str] | None = None) -> Iterator[Service]:
    """`shared`: on a PostgreSQL server of its own, with its defaults; else on SQLite. `counted`: see rig.counted.

    `settings`: environment variables beside SETTINGS.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(_postgres()) if shared else None
        address = server.get_uri().replace("postgres:@", "postgres@") if server else ""
        environment = {**os.environ, **SETTINGS, **(settings or {})}
        if server:
            environment["GRADMARKET_DATABASE"] = address
        data = folder / "data"
        program = ["benchmarks.rig.counted", str(folder / COUNTS)] if counted else ["gradmarket"]
        process = stack.enter_context(serving(program, data, environment))
        url = (data / "url").read_text().strip()
        facts = sign_in.ChainFacts.model_validate_json(httpx.get(f"{url}/v1/chain", timeout=PATIENCE_S).content)
        yield Service(
            process=psutil.Process(process.pid),
            url=url,
            token=(data / "keys" / "token").read_text().strip(),
            domain=facts.domain,
            folder=folder,
            database=psutil.Process(_postmaster(server)) if server else None,
            address=address or f"sqlite:///{data / 'gradmarket.sqlite'}",
        )


@contextmanager
def _postgres() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory() as folder:
        server = get_server(folder)
        try:
            yield server
        finally:
            server.cleanup()


def _postmaster(server: PostgresServer) -> int:
    return int((Path(server.pgdata) / "postmaster.pid").read_text().split()[0])


@contextmanager
def serving(program: list[str], data: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program that takes `serve`, until the end of the block; its local chain ends with it."""
    command = [sys.executable, "-m", *program, "serve", "--data", str(data), "--port", "0"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        while not ((data / "url").exists() and _answers((data / "url").read_text().strip())):
            if process.poll() is not None:
                raise RuntimeError("the service ended at once")
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait()
        chain = LocalChain.find_running_chain(data / "chain")
        if chain is not None:
            chain.stop()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/v1/health", timeout=PATIENCE_S).status_code == 200
    except (httpx.TransportError, httpx.UnsupportedProtocol):
        return False
