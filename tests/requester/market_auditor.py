"""The requester's auditor on the market fixture: it computes as an honest worker does, or errs on demand."""

from typing import Any

from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.rules import sketch_packing
from gradmarket.market.terms import Digest, JobState, Role, blob_digest
from gradmarket.market.wire.audit_messages import AuditAnswer, PanelOpening, PanelSeal, SketchAnswer
from gradmarket.market.wire.poll import OfferFields
from gradmarket.sealing import SealingKey
from requester.exchange.payload_upload import build_incoming_upload
from requester.features.auditors import panel_exchange
from requester.features.audits import auditor_claims, auditor_payloads
from requester.features.audits.audit_kind import Asker
from requester.features.audits.audit_tables import Audit
from requester.features.audits.auditor_claims import Claimed
from requester.features.planted import planting
from requester.features.tolerance import calibrating
from requester.store import identities
from tests.kit.behaviour import HONEST, Behaviour
from tests.requester.market_fixture import CLASS, LAYOUT, MarketFixture
from tests.requester.market_windows import WindowWorker
from tests.requester.market_workers import SimWorker, key_of


class SimAuditor:
    def __init__(
        self,
        market: MarketFixture,
        behaviour: Behaviour = HONEST,
        determinism_class: str = CLASS,
        name: str = "auditor",
        kind: type[SimWorker] = SimWorker,
        operator: str = "requester",
    ) -> None:
        self.market, self.determinism_class, self.name, self.operator = market, determinism_class, name, operator
        self.computer = kind(market, key_of("auditor"), behaviour, determinism_class)
        self.sealing = SealingKey(name, key_of(f"auditor {operator}"))
        with market.context.begin() as work:
            identities.store_token(work, f"{operator}'s", Role.AUDIT, operator, None, market.clock())

    @property
    def asker(self) -> Asker:
        return Asker(self.name, self.operator, self.determinism_class)

    def claim(self) -> Claimed | None:
        return auditor_claims.claim_next_audit(self.market.context, self.asker)

    def sealed(self, claimed: Claimed) -> PanelSeal:
        return self.sealing.seal(self.market.context.domain, claimed.offer, claimed.run, self.find(claimed))

    def opened(self, claimed: Claimed) -> PanelOpening:
        return self.sealing.open(self.market.context.domain, claimed.offer, claimed.run, self.find(claimed), 1.0)

    def sit(self, claimed: Claimed) -> None:
        """Seals its answer, or opens it, as its panel asks."""
        if claimed.panel == "seal":
            panel_exchange.record_seal(self.market.context, claimed.task, self.operator, self.sealed(claimed))
        else:
            panel_exchange.record_opening(self.market.context, claimed.task, self.operator, self.opened(claimed))

    def find(self, claimed: Claimed, again: int = 0) -> Digest:
        """The root of one run; the first of a windowed audit repeats two windows."""
        offer = OfferFields.of(claimed.offer)
        if claimed.window is None or again or not isinstance(self.computer, WindowWorker):
            return blob_digest(self.computer.compute(offer))
        return blob_digest(self.computer.replay(offer, claimed.window))

    def bring(self, claimed: Claimed) -> None:
        """Brings its own payload, as the route takes it."""
        context = self.market.context
        want = auditor_payloads.find_auditors_grant(context, claimed.task)
        with context.blobs.receive() as incoming:
            arrival = build_incoming_upload(want, incoming)
            arrival.take(self.computer.compute(OfferFields.of(claimed.offer)))
            auditor_payloads.accept_delivery(context, want, arrival)

    def answer(self, claimed: Claimed, again: int = 0) -> bool:
        """Runs the task once, after `again` runs; returns whether to run it again."""
        if claimed.panel:
            self.sit(claimed)
            return False
        if claimed.planted:
            said = AuditAnswer(auditor=self.name, run=claimed.run, root=self.find(claimed), seconds=1.0)
            planting.record_planted_answer(self.market.context, claimed.task, said)
            return False
        if claimed.brings:
            self.bring(claimed)
            return False
        if claimed.calibrates:
            return calibrating.record_trusted_answer(self.market.context, claimed.task, self.sketched(claimed, again))
        found = {"root": self.find(claimed, again), "sketch": self.beside(claimed)}
        said = AuditAnswer(auditor=self.name, run=claimed.run + again, seconds=1.0, **found)
        return auditor_claims.record_audit_answer(self.market.context, claimed.task, said)

    def beside(self, claimed: Claimed) -> dict[str, bytes] | None:
        """The sketch of its answer, where the replicas were compared by theirs."""
        if claimed.wave_seed is None:
            return None
        offer = OfferFields.of(claimed.offer)
        payload = self.computer.compute(offer)
        return sketch_packing.encode_sketch(
            sketch_packing.of_payload(LAYOUT, payload, load_codec("fp32"), offer.seed, claimed.wave_seed)
        )

    def sketched(self, claimed: Claimed, again: int = 0, **changes: Any) -> SketchAnswer:
        """Returns its answer to a calibrating task; `changes` are a cheater's."""
        fields = {
            "auditor": self.name,
            "determinism_class": self.determinism_class,
            "run": claimed.run + again,
            "root": self.find(claimed),
            "sketch": self.beside(claimed),
        }
        return SketchAnswer(**(fields | changes))

    def work(self) -> int:
        """Runs everything due and its consequences; returns the number of runs."""
        runs = 0
        while claimed := self.claim():
            tried = 0
            while self.answer(claimed, tried):
                tried += 1
            runs += tried + 1
            self.market.drive()
        return runs

    def play(self, passes: int = 40) -> None:
        """The market goes on with this auditor at work, until the job is over or waits for people."""
        for _ in range(passes):
            self.market.request_work()  # its leases may rest on parameters that were taken back: it learns so first
            self.market.take_turns()
            self.market.lapse(2.0)
            self.work()
            if self.market.state() != JobState.RUNNING:
                break
        self.market.take_turns()


def audits_of(market: MarketFixture) -> list[Audit]:
    return sorted(market.all(Audit), key=lambda audit: audit.task_id)
