"""The auditor of the service's own machine: a process beside the service, one for all that share the database.

It has an API token of its own (role audit), and computes in the confined runner, as any auditor. The service starts it
again where it ends, and ends it when it stops; it ends by itself where the service is killed, and where its token is
refused. Each data folder has its own secret, and the service that starts the auditor makes its own the live one.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import structlog

from contracts.processes import own_name
from gradmarket.market.terms import Role
from graphdoc.runner.cards import list_cards
from requester import keys
from requester.context import Context
from requester.features.audits import audit_rows
from requester.settings import RequesterSettings
from requester.store import identities, leader_leases
from requester.store.locks import retry_on_conflict

NAME: Final = "this service"
"""The auditor's name in audits."""
PREFIX: Final = "GRADMARKET_"
"""Prefix of the service's variables, which hold its keys and its own token."""
NONE: Final = "none"
DUTY_S: Final = 30.0
LOOK_S: Final = 1.0
AGAIN_S: Final = 10.0
"""Seconds from an auditor's unrequested end until the next one's start."""
LEAVE_S: Final = 3.0
"""Seconds that it has to end; its unfinished work is computed again after the next start."""

log = structlog.get_logger("gradmarket.auditor")


class OwnAuditor:
    """`with OwnAuditor(context, command, log):` runs the command until the end of the block, one in all processes.

    `command` is called at each start. The output of the process goes to the file `said`, which each start empties.
    """

    def __init__(self, context: Context, command: Sequence[str], log_path: Path, holder: str | None = None) -> None:
        self._context, self._command, self._said = context, command, log_path
        self._holder = holder or own_name()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look_after, name="own-auditor")
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "OwnAuditor":
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _look_after(self) -> None:
        wait = 0.0
        while not self._stopping.wait(wait):
            wait = self.look()
        self.end()
        leader_leases.release_lease(self._context.begin, leader_leases.AUDITOR, self._holder)

    def look(self) -> float:
        """Starts the process where it is this service's to run; returns the seconds until the next look."""
        try:
            if not self._has_duty():
                self.end()
                return DUTY_S / 3
            if self.process is None:
                self._start()
            elif (code := self.process.poll()) is not None:
                log.warning("the auditor ended, and is started again", code=code, last_line=self._read_last_line())
                self.end()
                return AGAIN_S
        except Exception:
            log.exception("the auditor cannot be looked after")
            return AGAIN_S
        return LOOK_S

    def _has_duty(self) -> bool:
        context, duty = self._context, leader_leases.AUDITOR
        return leader_leases.renew_lease(context.begin, context.reading, duty, self._holder, context.clock(), DUTY_S)

    def _start(self) -> None:
        self._take_over()
        without_secrets = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        with self._said.open("wb") as log_file:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log_file,
                env=without_secrets,
                start_new_session=True,  # Ctrl-C is for the service, which ends it
            )

    @retry_on_conflict
    def _take_over(self) -> None:
        """Releases the audits that the previous auditor had claimed, and makes this service's token the live one."""
        context = self._context
        secret = keys.load_or_create_secret(None, token_path(context.settings))
        with context.begin() as work:
            audit_rows.release_claims(work, NAME)
            identities.store_own_token(work, secret, context.clock(), Role.AUDIT, identities.AUDITOR)

    def end(self) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin:
            process.stdin.close()

    def _read_last_line(self) -> str:
        log_lines = self._said.read_text(errors="replace").strip().splitlines()
        lines = [line for line in log_lines if not line.startswith("fix: ")]  # the fault comes before its fix
        return lines[-1][:500] if lines else ""


def token_path(settings: RequesterSettings) -> Path:
    return settings.data / "keys" / "auditor"


CUDA: Final = "cuda"


def build_command(context: Context, url: str) -> list[str] | None:
    """Returns the command of the service's own auditor, None where the service runs none.

    `url`: the address under which this machine reaches the service.
    """
    settings = context.settings
    if settings.auditor == NONE or find_spec("torch") is None:
        return None
    stores = {str(one) for one in (settings.s3_endpoint, settings.s3_public_endpoint) if one is not None}
    reach = [word for store in sorted(stores) for word in ("--reach", store.rstrip("/"))]
    token, cache = token_path(settings), settings.data / "auditor" / "own"
    own = ["--market", url, "--token-file", str(token), "--cache", str(cache)]
    run = [sys.executable, "-m", "gradmarket", "auditor", "run", "--name", NAME, "--with-parent"]
    return [*run, *own, "--device", settings.auditor, *reach]


def describe_own_auditor(settings_auditor: str) -> str:
    """Describes the service's own auditor, for the service's start."""
    if settings_auditor == NONE:
        return "none here: jobs are decided by votes until one runs (gradmarket auditor run)"
    if find_spec("torch") is None:
        return "none here, since torch is missing: pip install 'gradmarket[worker]', or run one elsewhere"
    if settings_auditor.startswith(CUDA):
        found, number = list_cards(), int(settings_auditor.partition(":")[2] or 0)
        if number >= len(found.cards):
            fault = found.fault or f"this machine has {len(found.cards)} cards"
            return f"none can start for {settings_auditor}: {fault}; take --auditor auto, or see `gradmarket doctor`"
    return "this machine checks answers, in a process of its own (--auditor none: it does not)"
