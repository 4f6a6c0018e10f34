"""Requests and answers between worker and requester, as JSON. Hashes and signatures are `0x…`, money is in units.

One request a task in the steady state: a poll carries finished commitments and reveals in, and brings leases, opened
waves, wanted uploads, verdicts and vouchers back. The answer is a function of the rows: whatever the worker does not
say it knows is told again, so neither side loses anything by dying.
"""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from gradmarket.market.fields import AddressField, HashField, SignatureField, hex_bytes
from gradmarket.market.job import DigestField
from gradmarket.market.messages import Commitment, Offer, SignedWave, Sketch, Verdict, Voucher
from gradmarket.market.rules import sketch_packing
from gradmarket.market.rules.faults import StepFault
from gradmarket.market.terms import Address, Digest, Hash, JobId, ReplicaId, ReplicaState, TaskId, Units

MAX_WAIT_S: Final = 3600.0
"""Of a poll: who has waited idle for long has little to say."""
KEPT_ALIVE: Final = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""Socket options of both ends (seconds; a count): a silent connection stays open in NATs, and its end shows in 40 s."""
NO_ROOT: Final = Hash(bytes(32))


NumbersField = Annotated[bytes, *hex_bytes(sketch_packing.BYTES)]
"""One tensor of a sketch: float32, little-endian."""
UnitsField = Annotated[Units, Field(ge=0, lt=2**63)]
ReplicaField = Annotated[ReplicaId, Field(pattern=r"^[0-9A-Za-z-]{1,128}$")]
JobField = Annotated[JobId, Field(pattern=r"^[0-9A-Za-z-]{1,64}$")]
NO_NUL: Final = r"^[^\x00]*$"
"""PostgreSQL's texts hold every character but this one; half of a surrogate pair fits no pattern at all."""
NumbersFields = Annotated[
    dict[Annotated[str, Field(max_length=200, pattern=NO_NUL)], NumbersField], Field(max_length=sketch_packing.TENSORS)
]
"""A sketch, by the names of its tensors."""


class Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


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

    def struct(self) -> Offer:
        return Offer(**dict(self))


class Lease(Wire):
    """`seconds` are left to commit; `fence` accompanies everything said about this replica."""

    replica: ReplicaId
    task: TaskId
    job: JobId
    fence: int
    seconds: float
    offer: OfferFields
    signature: SignatureField


class WaveOpened(Wire):
    """The wave is closed over `commitments` (worker, sealed) and its secret is open: reveal now."""

    replica: ReplicaId
    wave: int
    secret: HashField
    commitments: tuple[tuple[AddressField, HashField], ...]
    signature: SignatureField

    def struct(self, offer: Hash, commitments: Hash) -> SignedWave:
        return SignedWave(offer, self.wave, self.secret, commitments)


class UploadRequest(Wire):
    """`door`: an address that takes the payload by a plain PUT; then say to the market that it was put there."""

    replica: ReplicaId
    seconds: float
    door: str | None = Field(default=None, max_length=8192)


class SignedVerdict(Wire):
    """What became of a replica. `signature` is none where nothing was judged (a lease that lapsed, say)."""

    replica: ReplicaId
    state: ReplicaState
    outcome: int | None
    root: DigestField | None
    price: UnitsField
    reason: str
    signature: SignatureField | None

    def struct(self, offer: Hash, worker: Address) -> Verdict:
        return Verdict(offer, worker, self.outcome or 0, hash_of(self.root) if self.root else NO_ROOT, self.price)


class SignedVoucher(Wire):
    job: JobId
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
    """The sketch of an answer under the seed of its wave, and the class it was computed in, signed."""

    numbers: NumbersFields
    determinism_class: str = Field(max_length=200, pattern=NO_NUL)
    signature: SignatureField

    def struct(self, offer: Hash, worker: Address, seed: Hash) -> Sketch:
        made = sketch_packing.digest_of(sketch_packing.read(self.numbers), self.determinism_class)
        return Sketch(offer, worker, seed, made)


class Reveal(Wire):
    """`sketch` where the job's verifier compares sketches, and only there."""

    replica: ReplicaField
    fence: int
    salt: HashField
    root: DigestField
    sketch: SketchRequest | None = None


class LeaseReturn(Wire):
    """A lease that the worker gives back: it declines the task, or its runner failed."""

    replica: ReplicaField
    fence: int
    failed: bool = False
    reason: str = Field(default="", max_length=500, pattern=NO_NUL)
    fault: StepFault | None = None
    """What failed, where it did."""


class PollRequest(Wire):
    """`capacity`: further leases wanted. `known`: the replica states that the worker has heard of."""

    determinism_class: str = Field(default="", max_length=200, pattern=NO_NUL)
    capacity: int = Field(default=0, ge=0, le=64)
    commitments: tuple[CommitmentRequest, ...] = Field(default=(), max_length=256)
    reveals: tuple[Reveal, ...] = Field(default=(), max_length=256)
    given_up: tuple[LeaseReturn, ...] = Field(default=(), max_length=256)
    known: dict[ReplicaField, ReplicaState] = Field(default_factory=dict, max_length=1024)
    vouchers_for: tuple[JobField, ...] = Field(default=(), max_length=64)
    """Tell the newest voucher of these jobs again."""
    jobs: tuple[JobField, ...] = Field(default=(), max_length=64)
    """Only leases of these jobs; none named: of any."""
    min_price: UnitsField = Units(0)
    """Only leases that pay at least this for a gradient."""
    min_prices: dict[JobField, UnitsField] = Field(default_factory=dict, max_length=64)
    """The same for single jobs, where it is more: who minds its time wants more of a heavier job."""
    leaving: bool = False
    wait_s: float = Field(default=20.0, ge=0, le=MAX_WAIT_S)


class RefusedItem(Wire):
    """One item of the poll was refused; the others stand."""

    replica: ReplicaId
    code: str
    detail: str


class PollAnswer(Wire):
    leases: tuple[Lease, ...] = ()
    waves: tuple[WaveOpened, ...] = ()
    uploads: tuple[UploadRequest, ...] = ()
    verdicts: tuple[SignedVerdict, ...] = ()
    vouchers: tuple[SignedVoucher, ...] = ()
    refusals: tuple[RefusedItem, ...] = ()
    waiting: str = ""
    """Why there is no lease for it."""


class UploadAnswer(Wire):
    """The payload was taken: what became of the replica, and the voucher that pays it."""

    verdict: SignedVerdict
    voucher: SignedVoucher | None


class SignInNonce(Wire):
    nonce: str
    domain: str
    uri: str
    chain_id: int
    expires_at: str


SIGN_IN_LETTERS: Final = 1500
"""Of a message to sign in with: around 450, and twice the service's address."""


Nonce63 = Annotated[int, Field(ge=1, lt=2**63)]


class ConsentRequest(Wire):
    """The payout key's signature under the messages.Consent for who signs in."""

    nonce: Nonce63
    signature: SignatureField


class WithdrawalRequest(Wire):
    """The payout key's signature under a messages.Withdrawal."""

    payout: AddressField
    nonce: Nonce63
    signature: SignatureField


class OperatorStatus(Wire):
    """Whose record the worker has from now on."""

    worker: AddressField
    operator: AddressField


class SignIn(Wire):
    """An EIP-4361 message and its signature; the payout address stands in the message's statement."""

    message: str = Field(max_length=SIGN_IN_LETTERS, pattern=NO_NUL)
    signature: SignatureField
    consent: ConsentRequest | None = None
    """Without one the worker is its own operator, wherever it is paid."""


class Session(Wire):
    token: str
    address: AddressField
    payout: AddressField
    expires_at: str


class ChainFacts(Wire):
    """Where the money is. `rpc` is told for a local chain only: elsewhere a worker brings its own.

    `block` is the contract's first: nobody needs to look for its events before it.
    """

    chain_id: int
    genesis: HashField
    contract: AddressField
    token: AddressField
    instance: HashField
    signer: AddressField
    symbol: str
    decimals: int
    unit: str
    rpc: str | None
    block: int = Field(default=0, ge=0, lt=2**63)


STATEMENT: Final = "Work for gradmarket. Pay out to {payout}."


def hash_of(digest: Digest) -> Hash:
    """The 32 bytes of `blake3:<hex>`."""
    return Hash(bytes.fromhex(digest.removeprefix("blake3:")))


def digest_of(value: Hash) -> Digest:
    return Digest("blake3:" + value.hex())
