"""Replays a verdict from what the service publishes about its task: every signature, seal, secret, vote and draw.

Pure. Only the signer is taken as given: the voucher signer of the job on-chain. With this, a worker that was wrongly
rejected can prove it to anybody.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gradmarket.market.fields import AddressField, HashField, SignatureField
from gradmarket.market.job import Publication
from gradmarket.market.job_parts import DigestField
from gradmarket.market.messages import Commitment, Outcome, SignedWave, Verdict
from gradmarket.market.rules import auditing, secrets, sketch_packing, voting
from gradmarket.market.rules.replication import Plan
from gradmarket.market.rules.verifiers import tolerance
from gradmarket.market.signing import Domain, Struct, digest
from gradmarket.market.terms import Address, Digest, Hash, ReplicaId, ReplicaState, TaskState, Units
from gradmarket.market.wire import NO_ROOT, NumbersFields, OfferFields, hash_of
from gradmarket.worker.protocol import published_evidence
from gradmarket.worker.protocol.protocol_checks import PROMISES, signed
from gradmarket.worker.protocol.published_evidence import (
    PublishedView,
    Thresholds,
    groups,
    not_sketched,
    opens,
    thresholds,
)


class ReplayedBallot(published_evidence.PublishedBallot):
    payout: AddressField
    state: ReplicaState
    outcome: int | None
    verdict_root: DigestField | None
    verdict_signature: SignatureField | None

    @property
    def revealed(self) -> bool:
        return self.salt is not None and self.root is not None


class ReplayedWave(published_evidence.PublishedWave):
    secret: HashField
    seed: HashField
    signature: SignatureField


class ReplayedAudit(PublishedView):
    state: str
    reason: str
    root: DigestField | None
    determinism_class: str = ""
    sketch: NumbersFields | None = None


class ReplayedEvidence(PublishedView):
    """The fields of `GET /v1/jobs/{id}/tasks/{id}` that a verdict rests on."""

    state: TaskState
    root: DigestField | None
    offer: OfferFields
    offer_digest: HashField
    offer_signature: SignatureField
    waves: tuple[ReplayedWave, ...]
    replicas: tuple[ReplayedBallot, ...]
    allowed: tuple[Thresholds, ...] | None = None
    plan: Plan | None = None
    audit_link: HashField | None = None
    audit: ReplayedAudit | None = None

    @property
    def committed(self) -> tuple[ReplayedBallot, ...]:
        return tuple(ballot for ballot in self.replicas if ballot.sealed is not None)


@dataclass(frozen=True)
class VerdictCase:
    """One task's evidence, the job that it belongs to, and who must have signed."""

    domain: Domain
    signer: Address
    publication: Publication
    evidence: ReplayedEvidence

    @property
    def offer(self) -> Hash:
        return digest(self.domain, self.evidence.offer.struct())

    def by_signer(self, struct: Struct, signature: bytes) -> bool:
        return signed(self.domain, struct, signature, self.signer)


def faults(case: VerdictCase) -> list[str]:
    """Returns every inconsistency in the evidence, in words; empty if the verdict is proven."""
    if not case.evidence.committed:
        return ["no ballot is shown yet: evidence opens when the task is decided"]
    return [
        *_offer(case),
        *_ballots(case),
        *_waves(case),
        *_sketches(case),
        *_votes(case),
        *_verdicts(case),
        *_draw(case),
    ]


def _offer(case: VerdictCase) -> Iterator[str]:
    evidence = case.evidence
    if evidence.offer_digest != case.offer:
        yield "the offer's digest is another"
    if not case.by_signer(evidence.offer.struct(), evidence.offer_signature):
        yield f"the offer is not signed by {case.signer}"
    if evidence.offer.spec != hash_of(case.publication.digest):
        yield "the offer names another specification than the job's"


def _ballots(case: VerdictCase) -> Iterator[str]:
    for ballot in case.evidence.committed:
        commitment = Commitment(case.offer, ballot.worker, Hash(ballot.sealed or b""))
        if not signed(case.domain, commitment, ballot.commitment_signature or b"", ballot.worker):
            yield f"{ballot.id}: its commitment is not signed by {ballot.worker}"
        if ballot.revealed and ballot.state != ReplicaState.REJECTED and not opens(case.offer, ballot):
            yield f"{ballot.id}: salt and root do not open its commitment"
    workers = [ballot.worker for ballot in case.evidence.committed]
    if len(set(workers)) != len(workers):
        yield "one worker has two ballots"


def _waves(case: VerdictCase) -> Iterator[str]:
    for wave in case.evidence.waves:
        members = [(one.worker, Hash(one.sealed or b"")) for one in case.evidence.committed]
        waved = [pair for pair, one in zip(members, case.evidence.committed, strict=True) if one.wave == wave.number]
        commitments = secrets.digest_of(waved)
        if commitments != wave.commitments:
            yield f"wave {wave.number} closed over other commitments"
        if not secrets.leads_to(wave.secret, wave.number, case.evidence.offer.anchor):
            yield f"wave {wave.number}: its secret does not lead to the offer's anchor"
        if secrets.wave_seed(wave.secret, commitments) != wave.seed:
            yield f"wave {wave.number}: another seed than its secret and commitments give"
        if not case.by_signer(SignedWave(case.offer, wave.number, wave.secret, commitments), wave.signature):
            yield f"wave {wave.number} is not signed by {case.signer}"


def agreeing(case: VerdictCase) -> frozenset[ReplicaId]:
    """Returns the quorum that follows from the ballots; empty if there is none."""
    committed, spec = case.evidence.committed, case.publication.spec
    agreed = groups(spec, case.offer, committed, case.evidence.allowed)
    judged = voting.judge(agreed, len(committed), case.evidence.plan or spec.plan())
    return judged.agreeing if isinstance(judged, voting.Quorum) else frozenset()


def _sketches(case: VerdictCase) -> Iterator[str]:
    if case.publication.spec.verifier.sketched:
        evidence, anchor = case.evidence, case.evidence.offer.anchor
        yield from not_sketched(case.domain, case.offer, anchor, evidence.waves, evidence.committed, evidence.allowed)


def _votes(case: VerdictCase) -> Iterator[str]:
    """Checks that the task's root is one of the quorum's."""
    winning = _roots(case, agreeing(case))
    if case.evidence.root is not None and case.evidence.root not in winning:
        expected = ", ".join(sorted(winning)) or None
        yield f"by its ballots the task has the root {expected}, and it is said to be {case.evidence.root}"


def _roots(case: VerdictCase, members: frozenset[ReplicaId]) -> set[Digest]:
    return {ballot.root for ballot in case.evidence.committed if ballot.id in members and ballot.root is not None}


def _verdicts(case: VerdictCase) -> Iterator[str]:
    """Checks the signed verdicts. If the task has no root, it was or will be redone, and nobody was judged by it."""
    quorum = agreeing(case)
    for ballot in case.evidence.committed:
        if ballot.verdict_signature is None or ballot.outcome is None:
            continue
        if not case.by_signer(_said(case, ballot), ballot.verdict_signature):
            yield f"{ballot.id}: its verdict is not signed by {case.signer}"
        if case.evidence.root is not None:
            yield from _just(case, ballot, quorum)


def _said(case: VerdictCase, ballot: ReplayedBallot) -> Verdict:
    root = NO_ROOT if ballot.verdict_root is None else hash_of(ballot.verdict_root)
    price = case.evidence.offer.price if ballot.outcome in PROMISES else Units(0)
    return Verdict(case.offer, ballot.worker, ballot.outcome or 0, root, price)


def _just(case: VerdictCase, ballot: ReplayedBallot, quorum: frozenset[ReplicaId]) -> Iterator[str]:
    """Checks that the outcome follows from the ballots, and that its signature covers the required root."""
    agrees, own = ballot.id in quorum, ballot.verdict_root == ballot.root
    if ballot.outcome in PROMISES and not own:
        yield f"{ballot.id}: promised pay for another root than its own"
    elif ballot.state == ReplicaState.PAYABLE and not agrees:
        if not _found(case, ballot):
            yield f"{ballot.id}: paid against the quorum, and no audit found its root, or one near it"
    elif ballot.outcome in PROMISES and not agrees:
        yield f"{ballot.id}: promised pay for another root than the quorum's"
    elif ballot.outcome == Outcome.REJECTED and agrees:
        yield f"{ballot.id}: rejected, and its ballot is the quorum's: only its payload could show why"
    elif ballot.outcome == Outcome.REJECTED and ballot.verdict_root not in _roots(case, quorum):
        yield f"{ballot.id}: rejected for a root that the quorum does not have"


def _found(case: VerdictCase, ballot: ReplayedBallot) -> bool:
    """Returns whether the audit's answer equals the ballot's, or is within the threshold of their classes."""
    audit = case.evidence.audit
    if audit is None or audit.root is None:
        return False
    if audit.sketch is None or ballot.sketch is None:
        return audit.root == ballot.root
    sketches = (audit.determinism_class, audit.sketch), (ballot.determinism_class or "", ballot.sketch)
    audited, own = (tolerance.SketchBallot(name, sketch_packing.read(numbers)) for name, numbers in sketches)
    return audit.root == ballot.root or tolerance.near(audited, own, thresholds(case.evidence.allowed))


def _draw(case: VerdictCase) -> Iterator[str]:
    """Checks that the task was audited exactly if the offer's last link says so, once that link is published."""
    evidence, link, promised = case.evidence, case.evidence.audit_link, case.publication.spec
    over = evidence.state in (TaskState.FINAL, TaskState.REVOKED)
    if (link is None or evidence.plan is None) and over and promised.audited:
        yield "the link that draws audits is not shown, though the task is over"
    if link is None or evidence.root is None or evidence.plan is None:
        return
    if not secrets.leads_to(link, case.publication.spec.replication.max_replicas, evidence.offer.anchor):
        yield "the link that draws audits does not lead to the offer's anchor"
    if not promised.may_check_so(evidence.plan):
        yield f"it was checked by {evidence.plan}, the job promises another plan"
    drawn = auditing.drawn(link, case.offer, hash_of(evidence.root), evidence.plan.audit)
    if drawn and evidence.audit is None and over:
        yield "it was drawn for an audit, and there is none"
