"""Real workers, as `gradmarket worker run` has them, in threads of their own: they fetch, compute and are paid."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gradmarket.market.terms import Address
from tests.attacks.scene import UNIT, Posted, Scene
from worker import wallet
from worker.journal import Journal
from worker.run import run_worker
from worker.settings import WorkerSettings
from worker.signals import Signals


@dataclass(frozen=True)
class Hired:
    scene: Scene
    address: Address
    folder: Path

    @property
    def paid(self) -> int:
        """Units on-chain; it redeems when it leaves."""
        return self.scene.ledger.balance(self.address) // UNIT

    @property
    def strikes(self) -> int:
        told = self.scene.requester.get(f"/v1/workers/{self.address}").json()
        return round(sum(record["weight"] for record in told["strikes"]))

    @property
    def journal(self) -> str:
        return (self.folder / "journal").read_text()


@contextmanager
def hired(jobs: Sequence[Posted], *settings: dict[str, Any]) -> Iterator[list[Hired]]:
    """One for each of the settings, at work for these jobs; within the block until it is asked to leave (`left`)."""
    with ExitStack() as stack:
        yield [stack.enter_context(_one(jobs, changes)) for changes in settings]


@contextmanager
def _one(jobs: Sequence[Posted], changes: dict[str, Any]) -> Iterator[Hired]:
    scene = jobs[0].scene
    with TemporaryDirectory() as name:
        folder = Path(name)
        address = wallet.load_or_create(folder, None, True).address
        chosen = {"market": scene.url, "data": folder, "jobs": frozenset(job.id for job in jobs), "wait_s": 0.5}
        signals, journal = Signals(), Journal(stream=(folder / "journal").open("a"))
        life = threading.Thread(target=run_worker, args=(WorkerSettings(**(chosen | changes)), None, journal, signals))
        life.start()
        try:
            yield Hired(scene, address, folder)
        finally:
            signals.leave()
            life.join()
