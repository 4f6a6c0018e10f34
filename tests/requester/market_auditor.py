"""The requester's auditor on the floor: it computes as an honest worker does, and may be told to err."""

from typing import Any

from market_floor import CLASS, LAYOUT, Floor
from market_workers import HONEST, Behaviour, SimWorker, key_of

from gradmarket.market.gradient.codecs import codec
from gradmarket.market.gradient.merkle import root
from gradmarket.market.rules import sketches
from gradmarket.market.terms import Digest, JobState
from gradmarket.market.wire import OfferFields
from gradmarket.market.wire_audits import AuditAnswer, SketchAnswer
from gradmarket.requester.stages import auditors, calibrating
from gradmarket.requester.stages.auditors import Claimed
from gradmarket.requester.store.tables import Audit


class SimAuditor:
    def __init__(
        self, floor: Floor, behaviour: Behaviour = HONEST, determinism_class: str = CLASS, name: str = "auditor"
    ) -> None:
        self.floor, self.determinism_class, self.name = floor, determinism_class, name
        self.computer = SimWorker(floor, key_of("auditor"), behaviour, determinism_class)

    def claim(self) -> Claimed | None:
        return auditors.claim(self.floor.context, self.name, self.determinism_class)

    def find(self, claimed: Claimed) -> Digest:
        return root(self.computer.compute(OfferFields.model_validate(claimed.offer)))

    def answer(self, claimed: Claimed, again: int = 0) -> bool:
        """Runs the task once, after so many runs; whether it is to do so again."""
        if claimed.calibrates:
            return calibrating.answer(self.floor.context, claimed.task, self.sketched(claimed, again))
        found = {"root": self.find(claimed), "sketch": self.beside(claimed)}
        said = AuditAnswer(auditor=self.name, run=claimed.run + again, seconds=1.0, **found)
        return auditors.answer(self.floor.context, claimed.task, said)

    def beside(self, claimed: Claimed) -> dict[str, bytes] | None:
        """The sketch of its answer, where the replicas were compared by theirs."""
        if claimed.wave_seed is None:
            return None
        offer = OfferFields.model_validate(claimed.offer)
        payload = self.computer.compute(offer)
        return sketches.tell(sketches.of_payload(LAYOUT, payload, codec("fp32"), offer.seed, claimed.wave_seed))

    def sketched(self, claimed: Claimed, again: int = 0, **changes: Any) -> SketchAnswer:
        """What it says of a task to calibrate with; `changes` are what somebody else would say instead."""
        fields = {
            "auditor": self.name,
            "determinism_class": self.determinism_class,
            "run": claimed.run + again,
            "root": self.find(claimed),
            "sketch": self.beside(claimed),
        }
        return SketchAnswer(**(fields | changes))

    def work(self) -> int:
        """Everything that is due, and what follows; how many runs that took."""
        runs = 0
        while claimed := self.claim():
            tried = 0
            while self.answer(claimed, tried):
                tried += 1
            runs += tried + 1
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
