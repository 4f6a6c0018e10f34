"""The demo's job and its five workers: three ordinary ones and two cheats, each with a wallet and payout address."""

import json
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gradmarket.demo.children import DemoFailed, DemoProcess, DemoProcesses
from gradmarket.market.signing import checksum_address
from gradmarket.market.terms import Address

GOAL: Final = 0.95
"""The least accuracy on held-out rows for a successful demo."""
PRICE: Final = 10**16
"""A hundredth of a token per gradient."""
HONEST: Final = "honest"
CAST: Final = (HONEST, "sign_flip", HONEST, "noise", HONEST)
"""How each worker behaves; a cheat's name is a function of the module `cheat`."""

JOB: Final[dict[str, Any]] = {
    "name": "handwritten digits",
    "model": {"architecture": "mlp", "arguments": {"hidden": [512]}},
    "data": {"ready": "digits"},
    "evaluation": {"partition": "test", "metric": "accuracy"},
    "step": {"kind": "gradient", "rows": 350},
    "optimizer": {"name": "adamw", "lr": 0.02},
    "rounds": 40,
    "tasks_per_round": 2,
    "replication": {"name": "fixed", "replicas": 3, "max_replicas": 5},
    "verifier": {"name": "exact"},
    "separation": ["payout"],
    "seed": 4,
    "price": str(PRICE),
    "deadlines": {"lease_s": 30, "wave_s": 6, "upload_s": 10},
    "stop": [{"metric": "accuracy", "at": 0.96}],
}


LEAVE_S: Final = 90.0
SETTINGS: Final = {
    "GRADMARKET_WORKER_LEASES": "2",
    "GRADMARKET_WORKER_DEVICE": "cpu",
    "GRADMARKET_WORKER_THREADS": "1",
}
"""With two replicas at once, a worker that waits for a split task's next vote can take the other task meanwhile. All
five share this machine, and are of one class on any machine."""


@dataclass(frozen=True)
class DemoWorker:
    behaviour: str
    payout: Address
    child: DemoProcess

    @property
    def honest(self) -> bool:
        return self.behaviour == HONEST

    def find_entry(self, event: str) -> dict[str, Any]:
        """Returns its newest log entry of this event. Raises DemoFailed if there is none."""
        entry = find_newest_entry(self.child.log.read_text(errors="replace"), event)
        if entry is None:
            raise DemoFailed(f"{self.child.name} logged no {event}; {self.child.last_words()}")
        return entry


def start_workers(children: DemoProcesses, market: str, folder: Path, cast: Sequence[str] = CAST) -> list[DemoWorker]:
    hired = []
    for index, behaviour in enumerate(cast, 1):
        name = f"worker-{index}-{behaviour}"
        payout = checksum_address("0x" + secrets.token_hex(20))
        options = ["--market", market, "--payout", payout, "--data", str(folder / name)]
        if behaviour == HONEST:
            command = ["-m", "gradmarket", "worker", "run", "--json", *options]
        else:
            command = ["-m", "gradmarket.demo.cheat", behaviour, *options]
        hired.append(DemoWorker(behaviour, payout, children.start(name, command, SETTINGS)))
    return hired


def end_workers(children: DemoProcesses, workers: list[DemoWorker]) -> None:
    """Signals all workers to leave; each finishes, redeems and releases. Raises DemoFailed if one is late or fails."""
    for worker in workers:
        children.forget(worker.child)
        worker.child.request_leave()
    for worker in workers:
        code = worker.child.left(LEAVE_S)
        if code != 0:
            raise DemoFailed(f"{worker.child.name} left with {code}; {worker.child.last_words()}")


def find_newest_entry(log: str, event: str) -> dict[str, Any] | None:
    """Returns the newest log entry of this event; None if there is none."""
    for line in reversed(log.splitlines()):
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and entry.get("event") == event:
                return entry
    return None
