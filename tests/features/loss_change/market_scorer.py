"""An auditor on the market fixture whose answers are scores: the task's own gradients mostly pass."""

import numpy as np

from gradmarket.market.features.loss_change import BLIND
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.inspection import Usable, inspect_shards
from gradmarket.market.gradient.payload import decode_shards
from gradmarket.market.terms import blob_digest
from gradmarket.market.wire.audit_messages import OTHER_DRAWS, AuditAnswer, LossFall, ScoreRequest
from gradmarket.market.wire.poll import OfferFields
from requester.features.audits import auditor_claims
from requester.features.audits.auditor_claims import Claimed
from requester.store import jobs
from requester.store.facts import layout_of
from requester.store.tables import Job
from tests.requester.market_auditor import SimAuditor
from tests.requester.market_fixture import CLASS, MarketFixture


class Scorer(SimAuditor):
    """`passing` is the share of honest gradients that pass; `seed` draws the changes of the loss."""

    def __init__(
        self, market: MarketFixture, passing: float = 0.9, seed: int = 0, determinism_class: str = CLASS
    ) -> None:
        super().__init__(market, determinism_class=determinism_class)
        self._passing, self._drawn = passing, np.random.default_rng(seed)

    def score(self, claimed: Claimed) -> ScoreRequest:
        """Looks at the accepted payload, as the real one does."""
        assert claimed.score is not None
        accepted = self.market.context.blobs.read(claimed.score.payload)
        honest = accepted == self.computer.compute(OfferFields.of(claimed.offer))
        return ScoreRequest(
            accepted=self._change(self._passing if honest else BLIND),
            trusted=self._change(self._passing),
            usable=self._is_own_usable(claimed),
        )

    def _is_own_usable(self, claimed: Claimed) -> bool:
        own = self.computer.compute(OfferFields.of(claimed.offer))
        with self.market.reading() as reader:
            job = reader.get_one(Job, claimed.job)
            spec, layout = jobs.load_spec(job), layout_of(job)
        shards = decode_shards(layout, own, load_codec(spec.uplink.codec), claimed.offer.seed)
        return isinstance(inspect_shards(layout, shards, spec.norm_bound), Usable)

    def build_answer(self, claimed: Claimed) -> AuditAnswer:
        own = blob_digest(self.computer.compute(OfferFields.of(claimed.offer)))
        return AuditAnswer(auditor=self.name, run=claimed.run, root=own, seconds=1.0, score=self.score(claimed))

    def answer(self, claimed: Claimed, again: int = 0) -> bool:
        """Over the wire's JSON; nothing is ever run again."""
        assert not again
        said = AuditAnswer.model_validate_json(self.build_answer(claimed).model_dump_json())
        return auditor_claims.record_audit_answer(self.market.context, claimed.task, said)

    def work(self) -> int:
        """Runs everything due and then its consequences: scores wait for nobody."""
        runs = 0
        while claimed := self.claim():
            self.answer(claimed)
            runs += 1
        self.market.drive()
        return runs

    def _change(self, passing: float) -> LossFall:
        others = np.sort(self._drawn.random(OTHER_DRAWS))
        passes = self._drawn.random() < passing
        return LossFall(own=float(others[-1]) + (0.5 if passes else -0.5), others=tuple(map(float, others)))
