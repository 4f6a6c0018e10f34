"""An auditor on the floor whose answers are scores: gradients of the task's rows mostly pass, others by chance."""

import numpy as np
from market_auditor import SimAuditor
from market_floor import CLASS, Floor

from gradmarket.market.gradient.merkle import root
from gradmarket.market.rules.loss_change import BLIND, OTHERS
from gradmarket.market.wire import OfferFields
from gradmarket.market.wire_audits import AuditAnswer, ChangeTold, ScoreMade
from gradmarket.requester.stages import auditors
from gradmarket.requester.stages.auditors import Claimed


class Scorer(SimAuditor):
    """`passing` is the share of honest gradients that pass; what falls by how much is drawn by `seed`."""

    def __init__(self, floor: Floor, passing: float = 0.9, seed: int = 0, determinism_class: str = CLASS) -> None:
        super().__init__(floor, determinism_class=determinism_class)
        self._passing, self._drawn = passing, np.random.default_rng(seed)

    def score(self, claimed: Claimed) -> ScoreMade:
        """Looks at the accepted payload, as the real one does."""
        assert claimed.score is not None
        accepted = self.floor.context.blobs.read(claimed.score.payload)
        honest = accepted == self.computer.compute(OfferFields.model_validate(claimed.offer))
        return ScoreMade(accepted=self._change(self._passing if honest else BLIND), trusted=self._change(self._passing))

    def said(self, claimed: Claimed) -> AuditAnswer:
        own = root(self.computer.compute(OfferFields.model_validate(claimed.offer)))
        return AuditAnswer(auditor=self.name, run=claimed.run, root=own, seconds=1.0, score=self.score(claimed))

    def answer(self, claimed: Claimed, again: int = 0) -> bool:
        """Over the wire's JSON; nothing is ever run again."""
        assert not again
        said = AuditAnswer.model_validate_json(self.said(claimed).model_dump_json())
        return auditors.answer(self.floor.context, claimed.task, said)

    def work(self) -> int:
        """Everything that is due, and then what follows: scores wait for nobody."""
        runs = 0
        while claimed := self.claim():
            self.answer(claimed)
            runs += 1
        self.floor.drive()
        return runs

    def _change(self, passing: float) -> ChangeTold:
        others = np.sort(self._drawn.random(OTHERS))
        passes = self._drawn.random() < passing
        return ChangeTold(own=float(others[-1]) + (0.5 if passes else -0.5), others=tuple(map(float, others)))
