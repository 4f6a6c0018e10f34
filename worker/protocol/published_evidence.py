"""What a market publishes about its verdicts, and whether its evidence proves a rejection. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from gradmarket.market.fields import AddressField, HashField, SignatureField
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import DigestField
from gradmarket.market.messages import Commitment
from gradmarket.market.rules import calibration, sketch_packing
from gradmarket.market.rules.replication.fixed import quorum
from gradmarket.market.rules.secrets import digest_of, leads_to, seal, wave_seed
from gradmarket.market.rules.verifiers import Revealed, tolerance, verifier
from gradmarket.market.signing import Domain, digest
from gradmarket.market.terms import Address, Digest, Hash, ReplicaId
from gradmarket.market.wire import NumbersFields, OfferFields, SketchRequest, hash_of
from gradmarket.worker.protocol import protocol_checks
from gradmarket.worker.protocol.records import ReplicaRecord


class PublishedView(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class PublishedPage(BaseModel):
    """One page of any list."""

    model_config = ConfigDict(extra="ignore")
    items: tuple[dict[str, Any], ...]
    next: str | None = None


class PublishedPayment(PublishedView):
    """An item of `GET /v1/jobs/{id}/payments`."""

    replica: ReplicaId
    worker: Address


class PublishedVerdict(PublishedView):
    """An item of `GET /v1/jobs/{id}/verdicts`."""

    replica: ReplicaId
    worker: Address
    outcome: int | None = None
    signature: SignatureField | None = None


class PublishedAccusation(PublishedView):
    """An accusation; `case` is its name in the contract."""

    worker: AddressField
    case: HashField | None = None


class PublishedAudit(PublishedView):
    """An item of `GET /v1/jobs/{id}/audits`; `root` is what the auditor found."""

    task: str
    root: DigestField | None = None
    accusations: tuple[PublishedAccusation, ...] = ()


class PublishedBallot(PublishedView):
    """A replica; its whole answer is shown once nobody can copy it any more."""

    id: ReplicaId
    worker: Address
    wave: int
    sealed: HashField | None = None
    commitment_signature: SignatureField | None = None
    salt: HashField | None = None
    root: DigestField | None = None
    determinism_class: str | None = None
    sketch: NumbersFields | None = None
    sketch_signature: SignatureField | None = None


class PublishedWave(PublishedView):
    number: int
    commitments: HashField
    secret: HashField | None = None
    seed: HashField | None = None


class Thresholds(PublishedView):
    """The largest deviation allowed for each tensor between two determinism classes."""

    classes: tuple[str, str]
    tau: dict[str, float]


class PublishedEvidence(PublishedView):
    """The response of `GET /v1/jobs/{id}/tasks/{id}`."""

    offer: OfferFields | None = None
    offer_digest: HashField
    offer_signature: SignatureField | None = None
    waves: tuple[PublishedWave, ...]
    replicas: tuple[PublishedBallot, ...]
    allowed: tuple[Thresholds, ...] | None = None

    @property
    def shown(self) -> bool:
        return any(ballot.sealed is not None for ballot in self.replicas)


def opens(offer: Hash, ballot: PublishedBallot) -> bool:
    """Returns whether the ballot's salt and root open its commitment."""
    if ballot.salt is None or ballot.root is None:
        return False
    return seal(offer, ballot.worker, Hash(ballot.salt), hash_of(Digest(ballot.root))) == ballot.sealed


def groups(
    spec: JobSpec, offer: Hash, committed: Sequence[PublishedBallot], allowed: Sequence[Thresholds] | None
) -> list[frozenset[ReplicaId]]:
    """Groups the replicas that agree, by the job's verifier; one that did not open its commitment is in no group."""
    chosen, cast = verifier(spec.verifier.name), {}
    for ballot in committed:
        sketch = None if ballot.sketch is None else sketch_packing.read(ballot.sketch)
        revealed = Revealed(Digest(ballot.root or ""), ballot.determinism_class or "", sketch)
        cast[ballot.id] = chosen.ballot(revealed) if opens(offer, ballot) else None
    return chosen.groups(cast, thresholds(allowed))


def thresholds(allowed: Sequence[Thresholds] | None) -> tolerance.Allowed:
    return tolerance.read(one.model_dump() for one in allowed or ())


def not_sketched(
    domain: Domain,
    offer: Hash,
    anchor: Hash,
    waves: Sequence[PublishedWave],
    committed: Sequence[PublishedBallot],
    allowed: Sequence[Thresholds] | None,
) -> Iterator[str]:
    """Yields the faults: an unsigned sketch, a chosen seed, thresholds that no calibration gives."""
    seeds: Mapping[int, Hash | None] = {wave.number: wave.seed for wave in waves}
    for wave in waves:
        secret = Hash(wave.secret or bytes(32))
        if wave.seed != wave_seed(secret, Hash(wave.commitments)) or not leads_to(secret, wave.number, anchor):
            yield f"wave {wave.number}: the seed of its sketches is another than its secret and commitments give"
    for ballot in committed:
        if ballot.sketch is not None and not _signed(domain, offer, ballot, seeds.get(ballot.wave)):
            yield f"{ballot.id}: its sketch is not signed by {ballot.worker}"
    for pair in allowed or ():
        if not all(calibration.LEAST <= tau <= calibration.MOST for tau in pair.tau.values()):
            yield f"no calibration gives the thresholds of {' and '.join(pair.classes)}"


def _signed(domain: Domain, offer: Hash, ballot: PublishedBallot, seed: Hash | None) -> bool:
    if ballot.sketch is None or ballot.sketch_signature is None or seed is None:
        return False
    request = SketchRequest(
        numbers=ballot.sketch, determinism_class=ballot.determinism_class or "", signature=ballot.sketch_signature
    )
    return protocol_checks.signed(domain, request.struct(offer, ballot.worker, seed), request.signature, ballot.worker)


def unproven(domain: Domain, record: ReplicaRecord, evidence: PublishedEvidence, spec: JobSpec) -> str:
    """Returns why the evidence does not show a quorum, by the job's policy, for another answer; empty if it does.

    Every commitment must be signed by its worker, the waves must have closed over exactly these, and the winners' salts
    and roots must open their commitments. Sketches must be signed by their workers too, if the job compares them.
    """
    if evidence.offer_digest != digest(domain, record.offer):
        return "it is about another offer"
    return next(_faults(domain, record, evidence, spec), "")


def _faults(domain: Domain, record: ReplicaRecord, evidence: PublishedEvidence, spec: JobSpec) -> Iterator[str]:
    offer, waves = evidence.offer_digest, evidence.waves
    committed = [ballot for ballot in evidence.replicas if ballot.sealed is not None]
    for ballot in committed:
        if not commits(domain, offer, ballot):
            yield f"{ballot.id} is not committed to by {ballot.worker}"
    for wave in waves:
        members = [(one.worker, Hash(one.sealed or b"")) for one in committed if one.wave == wave.number]
        if digest_of(members) != wave.commitments:
            yield f"wave {wave.number} closed over other commitments"
    if spec.verifier.sketched:
        yield from not_sketched(domain, offer, record.offer.anchor, waves, committed, evidence.allowed)
        yield from _own_sketch(record, committed)
    yield from _outvoted(offer, record, evidence, committed, spec)


def _own_sketch(record: ReplicaRecord, committed: Sequence[PublishedBallot]) -> Iterator[str]:
    """Checks that this worker's sketch is shown.

    If this worker signed it, it is the revealed one: it signs one per wave.
    """
    own = [ballot for ballot in committed if record.prepared and ballot.sealed == record.prepared.sealed]
    if not own or own[0].sketch is None:
        yield "this worker's own sketch is not shown"


def _outvoted(
    offer: Hash, record: ReplicaRecord, evidence: PublishedEvidence, committed: Sequence[PublishedBallot], spec: JobSpec
) -> Iterator[str]:
    """Checks that a quorum agrees with the answer that the verdict names, and that this worker answered otherwise."""
    chosen = [one for one in committed if one.root is not None and one.root == record.verdict.root]
    if not all(opens(offer, one) for one in chosen):
        yield "a winner's salt and root do not lead to its commitment"
    beside = {one.id for one in chosen}
    agreeing = groups(spec, offer, committed, evidence.allowed)
    group = next((members for members in agreeing if members & beside), frozenset())
    winners = [one for one in committed if one.id in group]
    if any(hash_of(Digest(one.root or "")) == record.root for one in winners):
        yield "the winners answered as this worker did"
    least = quorum(spec.replication.replicas)
    if len({one.worker for one in winners}) < least or 2 * len(winners) <= len(committed):
        yield f"{len(winners)} of {len(committed)} that committed agree"


def commits(domain: Domain, offer: Hash, ballot: PublishedBallot) -> bool:
    """Returns whether the ballot's commitment is signed by its worker."""
    if ballot.sealed is None or ballot.commitment_signature is None:
        return False
    commitment = Commitment(offer, ballot.worker, Hash(ballot.sealed))
    return protocol_checks.signed(domain, commitment, ballot.commitment_signature, ballot.worker)
