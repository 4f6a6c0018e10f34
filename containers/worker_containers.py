"""The five workers in containers of their own: each joins the market as a stranger would, with one command."""

import secrets
import time
from dataclasses import dataclass
from typing import Any, Final

from containers.compose_project import CHAIN_INSIDE, INSIDE, LABEL, LOOK_EVERY_S, ComposeProject
from gradmarket.demo.children import DemoFailed
from gradmarket.demo.workers import CAST, HONEST, LEAVE_S, SETTINGS, find_newest_entry
from gradmarket.market.signing import checksum_address
from gradmarket.market.terms import Address

IMAGE: Final = "gradmarket/worker-cpu"
CONFINED: Final = (
    *("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges", "--pids-limit", "512"),
)
INIT: Final = "/usr/bin/tini"


@dataclass(frozen=True)
class WorkerContainers:
    compose_project: ComposeProject
    name: str
    behaviour: str
    payout: Address

    @property
    def running(self) -> bool:
        return self.compose_project.engine.ask("inspect", "--format", "{{.State.Running}}", self.name).strip() == "true"

    @property
    def log(self) -> str:
        return self.compose_project.engine("logs", self.name)

    def find_entry(self, event: str) -> dict[str, Any]:
        """Returns its newest log entry of this event. Raises DemoFailed if there is none."""
        entry = find_newest_entry(self.log, event)
        if entry is None:
            raise DemoFailed(f"{self.name} logged no {event}; {self.last_words()}")
        return entry

    def kill(self) -> None:
        self.compose_project.engine("kill", "--signal", "KILL", self.name)

    def start_again(self) -> None:
        self.compose_project.engine("start", self.name)

    def request_leave(self) -> None:
        self.compose_project.engine("kill", "--signal", "TERM", self.name)

    def left(self, within_s: float) -> int:
        """Returns its exit code; raises DemoFailed if it takes longer."""
        until = time.monotonic() + within_s
        while self.running:
            if time.monotonic() > until:
                raise DemoFailed(f"{self.name} does not leave within {within_s:.0f} s; {self.last_words()}")
            time.sleep(LOOK_EVERY_S)
        return int(self.compose_project.engine("inspect", "--format", "{{.State.ExitCode}}", self.name))

    def last_words(self) -> str:
        return f"its log ends with:\n{self.compose_project.engine.ask('logs', '--tail', '40', self.name)}"


def hire(compose_project: ComposeProject) -> list[WorkerContainers]:
    return [_start(compose_project, index, behaviour) for index, behaviour in enumerate(CAST, 1)]


def dismiss(worker_containers: list[WorkerContainers]) -> None:
    """Stops all workers: each finishes, redeems and releases. Raises DemoFailed if one is late or fails."""
    for worker in worker_containers:
        worker.request_leave()
    for worker in worker_containers:
        code = worker.left(LEAVE_S)
        if code != 0:
            raise DemoFailed(f"{worker.name} left with {code}; {worker.last_words()}")


def _start(compose_project: ComposeProject, index: int, behaviour: str) -> WorkerContainers:
    name, payout = f"{compose_project.name}-worker-{index}", checksum_address("0x" + secrets.token_hex(20))
    options = ["--market", INSIDE, "--payout", payout]
    settings = {**SETTINGS, "GRADMARKET_WORKER_MARKET": INSIDE, "GRADMARKET_WORKER_RPC": CHAIN_INSIDE}
    environment = [f"--env={key}={value}" for key, value in settings.items()]
    command = [
        "run",
        "--detach",
        "--name",
        name,
        "--label",
        f"{LABEL}={compose_project.name}",
        "--network",
        compose_project.network,
    ]
    command += [*CONFINED, *environment]
    if behaviour == HONEST:
        command += [IMAGE, "--json", *options]
    else:
        cheat = ["python", "-m", "gradmarket.demo.cheat", behaviour, *options, "--data", "/data"]
        command += ["--entrypoint", INIT, IMAGE, "--", *cheat]
    compose_project.engine(*command)
    return WorkerContainers(compose_project, name, behaviour, payout)
