"""The requester's auditor on the floor: it computes as an honest worker does, and may be told to err."""

from market_floor import CLASS, Floor
from market_workers import HONEST, Behaviour, SimWorker, key_of

from gradmarket.market.gradient.merkle import root
from gradmarket.market.terms import Digest, JobState
from gradmarket.market.wire import OfferFields
from gradmarket.requester.stages import auditors
from gradmarket.requester.stages.auditors import Claimed
from gradmarket.requester.store.tables import Audit


class SimAuditor:
    def __init__(self, floor: Floor, behaviour: Behaviour = HONEST, determinism_class: str = CLASS) -> None:
        self.floor, self.determinism_class = floor, determinism_class
        self.computer = SimWorker(floor, key_of("auditor"), behaviour, determinism_class)

    def claim(self) -> Claimed | None:
        return auditors.claim(self.floor.context, "auditor", self.determinism_class)

    def find(self, claimed: Claimed) -> Digest:
        return root(self.computer.compute(OfferFields.model_validate(claimed.offer)))

    def answer(self, claimed: Claimed) -> bool:
        """Runs the task once; whether it is to do so again."""
        return auditors.answer(self.floor.context, claimed.task, "auditor", self.find(claimed), 1.0)

    def work(self) -> int:
        """Everything that is due, and what follows; how many runs that took."""
        runs = 0
        while claimed := self.claim():
            runs += 1
            while self.answer(claimed):
                runs += 1
            self.floor.drive()
        return runs

    def play(self, passes: int = 40) -> None:
        """The market goes on with this auditor at work, until the job is over or waits for people."""
        for _ in range(passes):
            for worker in self.floor.workers:
                worker.ask()  # what it holds may rest on parameters that were taken back: it hears so first
                worker.turn()
            self.floor.lapse(2.0)
            self.work()
            if self.floor.state() != JobState.RUNNING:
                break
        for worker in self.floor.workers:
            worker.turn()


def audits_of(floor: Floor) -> list[Audit]:
    return sorted(floor.all(Audit), key=lambda audit: audit.task_id)
