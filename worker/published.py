"""What a market publishes of its verdicts, and whether its evidence of a rejection proves it. Pure."""

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from gradmarket.market.errors import SignatureRefused
from gradmarket.market.fields import HashField, SignatureField
from gradmarket.market.job import DigestField
from gradmarket.market.messages import Commitment
from gradmarket.market.rules.replication.fixed import quorum
from gradmarket.market.rules.secrets import digest_of, seal
from gradmarket.market.signing import Domain, digest
from gradmarket.market.terms import Address, Digest, Hash, ReplicaId
from gradmarket.market.wire import hash_of
from gradmarket.worker import checks
from gradmarket.worker.records import Record


class Told(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Payment(Told):
    """Of `GET /v1/jobs/{id}/payments`."""

    replica: ReplicaId
    worker: Address


class Judged(Told):
    """Of `GET /v1/jobs/{id}/verdicts`."""

    replica: ReplicaId
    worker: Address
    outcome: int | None = None
    signature: SignatureField | None = None


class Ballot(Told):
    """A replica; salt, root and signatures are shown once nobody can copy them any more."""

    id: ReplicaId
    worker: Address
    wave: int
    sealed: HashField | None = None
    commitment_signature: SignatureField | None = None
    salt: HashField | None = None
    root: DigestField | None = None


class Wave(Told):
    number: int
    commitments: HashField


class Evidence(Told):
    """Of `GET /v1/jobs/{id}/tasks/{id}`."""

    offer_digest: HashField
    waves: tuple[Wave, ...]
    replicas: tuple[Ballot, ...]

    @property
    def shown(self) -> bool:
        return any(ballot.sealed is not None for ballot in self.replicas)


def unproven(domain: Domain, record: Record, evidence: Evidence, replicas: int) -> str:
    """Why the evidence does not show that a quorum of the job's policy, `replicas`, answered otherwise; else empty.

    Every commitment must be its worker's own, the waves must have closed over just these, and the winners' salts and
    roots must lead to what they committed to.
    """
    offer = digest(domain, record.offer)
    if evidence.offer_digest != offer:
        return "it is about another offer"
    committed = [ballot for ballot in evidence.replicas if ballot.sealed is not None]
    return next(_faults(domain, offer, record, evidence.waves, committed, replicas), "")


def _faults(
    domain: Domain, offer: Hash, record: Record, waves: Sequence[Wave], committed: Sequence[Ballot], replicas: int
) -> Iterator[str]:
    for ballot in committed:
        if not _committed(domain, offer, ballot):
            yield f"{ballot.id} is not committed to by {ballot.worker}"
    for wave in waves:
        members = [(each.worker, Hash(each.sealed or b"")) for each in committed if each.wave == wave.number]
        if digest_of(members) != wave.commitments:
            yield f"wave {wave.number} closed over other commitments"
    winners = [each for each in committed if each.root is not None and each.root == record.verdict.root]
    if not all(_opens(offer, each) for each in winners):
        yield "a winner's salt and root do not lead to its commitment"
    if any(hash_of(Digest(each.root or "")) == record.root for each in winners):
        yield "the winners answered as this worker did"
    if len({each.worker for each in winners}) < quorum(replicas) or 2 * len(winners) <= len(committed):
        yield f"{len(winners)} of {len(committed)} that committed agree"


def _committed(domain: Domain, offer: Hash, ballot: Ballot) -> bool:
    if ballot.sealed is None or ballot.commitment_signature is None:
        return False
    said = Commitment(offer, ballot.worker, Hash(ballot.sealed))
    return checks.signed(domain, said, ballot.commitment_signature, ballot.worker)


def _opens(offer: Hash, ballot: Ballot) -> bool:
    if ballot.salt is None or ballot.root is None:
        return False
    try:
        return seal(offer, ballot.worker, Hash(ballot.salt), hash_of(Digest(ballot.root))) == ballot.sealed
    except SignatureRefused:
        return False
