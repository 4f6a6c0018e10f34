"""The five workers: three of the product's own, two that cheat; each has a wallet and a payout address of its own."""

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gradmarket.demo.children import DemoFailed, DemoProcess, DemoProcesses
from gradmarket.demo.spec import CAST, HONEST
from gradmarket.market.signing import checksum
from gradmarket.market.terms import Address

LEAVE_S: Final = 90.0
SETTINGS: Final = {"GRADMARKET_WORKER_LEASES": "2"}
"""With two replicas at once, whoever waits for a split task's next vote can take the other task meanwhile."""


@dataclass(frozen=True)
class DemoWorker:
    behaviour: str
    payout: Address
    child: DemoProcess

    @property
    def honest(self) -> bool:
        return self.behaviour == HONEST

    def said(self, event: str) -> dict[str, Any]:
        """The newest thing that it said of this kind. Raises DemoFailed where it said none."""
        told = newest(self.child.log.read_text(errors="replace"), event)
        if told is None:
            raise DemoFailed(f"{self.child.name} said nothing of its {event}; {self.child.last_words()}")
        return told


def hire(children: DemoProcesses, market: str, folder: Path) -> list[DemoWorker]:
    return [_start(children, market, folder, index, behaviour) for index, behaviour in enumerate(CAST, 1)]


def dismiss(children: DemoProcesses, workers: list[DemoWorker]) -> None:
    """Asks all to leave; each finishes, redeems and releases. Raises DemoFailed if one does not, or not in peace."""
    for worker in workers:
        children.forget(worker.child)
        worker.child.ask_to_leave()
    for worker in workers:
        code = worker.child.left(LEAVE_S)
        if code != 0:
            raise DemoFailed(f"{worker.child.name} left with {code}; {worker.child.last_words()}")


def _start(children: DemoProcesses, market: str, folder: Path, index: int, behaviour: str) -> DemoWorker:
    name = f"worker-{index}-{behaviour}"
    payout = checksum("0x" + secrets.token_hex(20))
    options = ["--market", market, "--payout", payout, "--data", str(folder / name)]
    if behaviour == HONEST:
        command = ["-m", "gradmarket", "worker", "run", "--json", *options]
    else:
        command = ["-m", "gradmarket.demo.cheat", behaviour, *options]
    return DemoWorker(behaviour, payout, children.start(name, command, SETTINGS))


def newest(log: str, event: str) -> dict[str, Any] | None:
    """The newest line of a worker's log of this kind; None where there is none."""
    return next((told for line in reversed(log.splitlines()) if (told := _object(line)).get("event") == event), None)


def _object(line: str) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
