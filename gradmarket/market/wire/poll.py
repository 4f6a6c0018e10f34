"""The JSON requests and responses between worker and requester. Hashes and signatures are `0x…`, money is in units.

In the steady state a task that one replica decides costs one request: commitment, reveal and payload, answered by
verdict, voucher and the next lease. A poll carries finished commitments and reveals, and its response carries leases,
opened waves, requested uploads, verdicts and vouchers. Payloads follow it (`framing`). The response is a function of
the rows: everything that the worker does not report as known is sent again, so neither side loses anything by crashing.

A worker takes part in a private job by declaring its rows.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import Field

from gradmarket.market.fields import AddressField, AnnouncedClass, DigestField, HashField, Part, SignatureField
from gradmarket.market.messages import Commitment, Offer, SignedWave, Sketch, Verdict, Voucher
from gradmarket.market.printable import Printable
from gradmarket.market.terms import Address, Digest, Hash, ReplicaId, ReplicaState, Units, domain_hash
from gradmarket.market.wire import JobField, NumbersFields, ReplicaField, TaskField, TextField, UnitsField, Wire


class FaultKind(StrEnum):
    STEP_FAILED = "step_failed"
    """An operator refuses its arguments."""
    DATA_REFUSED = "data_refused"
    """A partition differs from its manifest."""
    LINK_FAILED = "link_failed"
    """A partition's link does not serve it."""
    OUT_OF_MEMORY = "out_of_memory"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    REFUSED = "refused"
    """The publication is invalid in another way."""


class StepFault(Part):
    """A fault that kept a worker from computing. Texts are empty and `row` is null where unknown."""

    kind: FaultKind
    node: Printable = Field(default="", max_length=120)
    """The failed step of the document: its number and its operator."""
    partition: Printable = Field(default="", max_length=200)
    input: Printable = Field(default="", max_length=100)
    row: int | None = Field(default=None, ge=0, lt=2**40)
    """Row within the partition."""
    message: Printable = Field(default="", max_length=300)

    @property
    def place(self) -> tuple[str, ...]:
        """The part of the report that two workers' reports of one failure share; the rest differs between machines."""
        if self.kind == FaultKind.STEP_FAILED:
            return (self.kind, self.node, self.partition)
        return (self.kind, self.partition)


MAX_WAIT_S: Final = 3600.0
"""Longest wait of a poll: a worker that has been idle for long has little to send."""
KEPT_ALIVE: Final = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""Socket options of both ends (seconds; a count): an idle connection stays open in NATs, a dead one ends in 40 s."""
ANSWER_WITHIN: Final = "answer_s"
"""Name of a request's extension: seconds from its last byte to the end of its answer (network.clocked)."""
NO_ROOT: Final = Hash(bytes(32))


class OfferFields(Wire):
    job: int
    spec: HashField
    round: int
    task: int
    attempt: int
    parameters: HashField
    seed: HashField
    price: UnitsField
    anchor: HashField
    lease_seconds: int
    wave_seconds: int
    upload_seconds: int

    @classmethod
    def of(cls, offer: Offer) -> Self:
        return cls.model_validate(offer, from_attributes=True)

    def struct(self) -> Offer:
        return Offer(**dict(self))


class Lease(Wire):
    """A leased task: `seconds` are left to commit; `fence` is part of every message about this replica."""

    replica: ReplicaField
    task: TaskField
    job: JobField
    fence: int
    seconds: float
    offer: OfferFields
    signature: SignatureField


class WaveOpened(Wire):
    """The wave is closed over `commitments` (worker, sealed) and its secret is open: reveal now."""

    replica: ReplicaField
    wave: int
    secret: HashField
    commitments: tuple[tuple[AddressField, HashField], ...]
    signature: SignatureField

    def struct(self, offer: Hash, commitments: Hash) -> SignedWave:
        return SignedWave(offer, self.wave, self.secret, commitments)


class UploadRequest(Wire):
    """The worker should upload its payload within `seconds`.

    `door` is an address that takes the payload by a plain PUT; a poll then reports that it is there.
    `in_parts`: there is one for each part, which the worker asks for.
    """

    replica: ReplicaField
    seconds: float
    door: str | None = Field(default=None, max_length=8192)
    in_parts: bool = False


class SignedVerdict(Wire):
    """The outcome of a replica. `signature` is null where nothing was judged, as for a lease that expired."""

    replica: ReplicaField
    state: ReplicaState
    outcome: int | None
    root: DigestField | None
    price: UnitsField
    reason: TextField
    signature: SignatureField | None

    def struct(self, offer: Hash, worker: Address) -> Verdict:
        return Verdict(offer, worker, self.outcome or 0, hash_of(self.root) if self.root else NO_ROOT, self.price)


class SignedVoucher(Wire):
    job: JobField
    chain_job: int
    cumulative: UnitsField
    signature: SignatureField

    def struct(self, worker: Address) -> Voucher:
        return Voucher(self.chain_job, worker, self.cumulative)


class CommitmentRequest(Wire):
    replica: ReplicaField
    fence: int
    sealed: HashField
    signature: SignatureField
    compute_seconds: float = Field(default=0.0, ge=0, le=1e6)

    def struct(self, offer: Hash, worker: Address) -> Commitment:
        return Commitment(offer, worker, self.sealed)


class SketchRequest(Wire):
    """The signed sketch of an answer under its wave's seed, and the class it was computed in."""

    numbers: NumbersFields
    determinism_class: Printable = Field(max_length=200)
    signature: SignatureField

    def struct(self, offer: Hash, worker: Address, seed: Hash) -> Sketch:
        return Sketch(offer, worker, seed, sketch_digest(self.numbers, self.determinism_class))


def sketch_digest(numbers: Mapping[str, bytes], determinism_class: str) -> Hash:
    """Returns the digest that a worker signs: of its sketch, and of the class whose thresholds apply to it."""
    names = sorted(numbers)
    parts = (determinism_class.encode(), *(name.encode() for name in names), b"".join(numbers[name] for name in names))
    return domain_hash("sketch", *parts)


class Reveal(Wire):
    """Opens a commitment. `sketch` is present exactly where the job's verifier compares sketches."""

    replica: ReplicaField
    fence: int
    salt: HashField
    root: DigestField
    sketch: SketchRequest | None = None


class Answer(Wire):
    """A commitment and what opens it, for a task that one replica decides: nobody else votes, so nobody can copy."""

    commitment: CommitmentRequest
    salt: HashField
    root: DigestField

    @property
    def replica(self) -> ReplicaId:
        return self.commitment.replica

    @property
    def fence(self) -> int:
        return self.commitment.fence

    def reveal(self) -> Reveal:
        return Reveal(replica=self.replica, fence=self.fence, salt=self.salt, root=self.root)


class PayloadPart(Wire):
    """A replica's payload. Its bytes follow the request, unless they were `put` at the address that a poll named.

    `start`: they follow from this byte on, in pieces (`framing`), since the market has those before; None: all, plain.
    """

    replica: ReplicaField
    fence: int
    put: bool = False
    start: int | None = Field(default=None, ge=0, lt=2**63)


class LeaseReturn(Wire):
    """A lease that the worker gives back: it declines the task, or its runner failed."""

    replica: ReplicaField
    fence: int
    failed: bool = False
    reason: Printable = Field(default="", max_length=500)
    fault: StepFault | None = None
    """The failure, if there was one."""


class PollRequest(Wire):
    """`capacity`: further leases wanted once what comes with the request is over: payloads are paid, reveals judged.

    `known`: the replica states that the worker knows of.
    """

    determinism_class: AnnouncedClass = Field(default="", max_length=200)
    capacity: int = Field(default=0, ge=0, le=64)
    commitments: tuple[CommitmentRequest, ...] = Field(default=(), max_length=256)
    reveals: tuple[Reveal, ...] = Field(default=(), max_length=256)
    given_up: tuple[LeaseReturn, ...] = Field(default=(), max_length=256)
    answers: tuple[Answer, ...] = Field(default=(), max_length=64)
    payloads: tuple[PayloadPart, ...] = Field(default=(), max_length=64)
    known: dict[ReplicaField, ReplicaState] = Field(default_factory=dict, max_length=1024)
    vouchers_for: tuple[JobField, ...] = Field(default=(), max_length=64)
    """Send the newest voucher of these jobs again."""
    jobs: tuple[JobField, ...] = Field(default=(), max_length=64)
    """Only leases of these jobs; empty: of any."""
    min_price: UnitsField = Units(0)
    """Only leases that pay at least this for a gradient."""
    min_prices: dict[JobField, UnitsField] = Field(default_factory=dict, max_length=64)
    """The same for single jobs, where it is more: a worker may want more for a heavier job."""
    attending: tuple[ReplicaField, ...] = Field(default=(), max_length=1024)
    """Replicas whose referee this worker listens to already."""
    memory: int = Field(default=0, ge=0, lt=2**63)
    """Bytes that a step may take on this worker's device, about (rules.classes); 0: unknown."""
    leaving: bool = False
    wait_s: float = Field(default=20.0, ge=0, le=MAX_WAIT_S)


class RefusedItem(Wire):
    """One item of the poll was refused; the others are valid."""

    replica: ReplicaField
    code: TextField
    detail: TextField


class UnusedReservation(Wire):
    """A job, by its number in the contract, that reserves more for the worker than it `earned` there."""

    chain_job: int
    earned: UnitsField


class PollAnswer(Wire):
    leases: tuple[Lease, ...] = ()
    waves: tuple[WaveOpened, ...] = ()
    uploads: tuple[UploadRequest, ...] = ()
    verdicts: tuple[SignedVerdict, ...] = ()
    vouchers: tuple[SignedVoucher, ...] = ()
    refusals: tuple[RefusedItem, ...] = ()
    hearings: tuple[ReplicaField, ...] = ()
    """Replicas that others answered otherwise: a referee hears both (GET /v1/work/hearings)."""
    waiting: TextField = ""
    """Why the worker gets no lease."""
    unused: dict[JobField, UnusedReservation] = {}
    """Jobs that are over (or that it leaves) and reserve more than it earned."""


Nonce63 = Annotated[int, Field(ge=1, lt=2**63)]


def hash_of(digest: Digest) -> Hash:
    """Returns the 32 bytes of `blake3:<hex>`."""
    return Hash(bytes.fromhex(digest.removeprefix("blake3:")))


def digest_of(value: Hash) -> Digest:
    return Digest("blake3:" + value.hex())
