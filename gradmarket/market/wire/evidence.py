"""A market's publications about its verdicts, as JSON: every checker reads this form.

Unknown fields are ignored. Ids and states are labels that nobody signs; features.verify checks everything else.
"""

from pydantic import AwareDatetime, ConfigDict, Field, field_validator

from gradmarket.market.fields import (
    NO_NUL,
    AddressField,
    AmountField,
    DigestField,
    HashField,
    OneFaultModel,
    SignatureField,
)
from gradmarket.market.terms import Plan, ReplicaId, ReplicaState, RoundState, TaskState, Units
from gradmarket.market.wire import NumbersFields
from gradmarket.market.wire.hearing_messages import PublishedHearing
from gradmarket.market.wire.poll import OfferFields, SignedVerdict


class PublishedView(OneFaultModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class PublishedRound(PublishedView):
    """An item of `GET /v1/jobs/{id}/rounds`: `parameters`, the start of its tasks, and `updated`, its result."""

    number: int = Field(ge=0, lt=2**31)
    state: RoundState
    parameters: DigestField
    updated: DigestField | None = None
    optimizer_state: DigestField | None = None
    """The optimizer's state after it, where that is kept: of a finished job's last round."""
    opened_at: AwareDatetime | None = None
    """By the service's own word."""


class PublishedTask(PublishedView):
    """An item of `GET /v1/jobs/{id}/tasks`: whether its answer is `used`, and in which round's merge."""

    id: str
    round: int = Field(ge=0, lt=2**31)
    index: int = Field(ge=0, lt=2**31)
    attempt: int = Field(ge=0, lt=2**31)
    state: TaskState
    root: DigestField | None = None
    used: bool
    merge_round: int = Field(ge=0, lt=2**31)


class PublishedPayment(PublishedView):
    """An item of `GET /v1/jobs/{id}/payments`; `amount` is in the token's smallest unit."""

    id: int
    task: str
    replica: ReplicaId
    worker: AddressField
    amount: AmountField
    payload_root: HashField | None = None
    batch: int | None = None
    batch_state: str | None = None


class PublishedVerdict(PublishedView):
    """An item of `GET /v1/jobs/{id}/verdicts`."""

    replica: ReplicaId
    worker: AddressField
    outcome: int | None = None
    signature: SignatureField | None = None


class PublishedAccusation(PublishedView):
    """An accusation; `case` is its name in the contract."""

    worker: AddressField
    case: HashField | None = None


class PublishedSeat(PublishedView):
    """One auditor of a panel, with its sealed and its opened answer (features.auditors)."""

    signer: AddressField | None = None
    sealed: HashField | None = None
    signature: SignatureField | None = None
    run: int = Field(ge=0, lt=2**31)
    root: DigestField | None = None
    salt: HashField | None = None


class PublishedAudit(PublishedView):
    """An item of `GET /v1/jobs/{id}/audits`, or a task's audit; `root` and `sketch` are the auditor's."""

    task: str
    root: DigestField | None = None
    determinism_class: str = ""
    sketch: NumbersFields | None = None
    accusations: tuple[PublishedAccusation, ...] = ()
    panel: tuple[PublishedSeat, ...] | None = None


class PublishedBallot(PublishedView):
    """A replica; its whole answer is shown once nobody can copy it any more."""

    id: ReplicaId
    worker: AddressField
    state: ReplicaState
    wave: int
    sealed: HashField | None = None
    commitment_signature: SignatureField | None = None
    salt: HashField | None = None
    root: DigestField | None = None
    determinism_class: str | None = Field(default=None, max_length=200, pattern=NO_NUL)
    sketch: NumbersFields | None = None
    sketch_signature: SignatureField | None = None
    outcome: int | None = None
    verdict_root: DigestField | None = None
    verdict_signature: SignatureField | None = None

    def verdict(self, price: Units) -> SignedVerdict:
        """Returns the verdict as its worker received it; `price` is the promised price."""
        return SignedVerdict(
            replica=self.id,
            state=self.state,
            outcome=self.outcome,
            root=self.verdict_root,
            price=price,
            reason="",
            signature=self.verdict_signature,
        )


class PublishedWave(PublishedView):
    number: int
    commitments: HashField
    secret: HashField | None = None
    seed: HashField | None = None
    signature: SignatureField | None = None


class Thresholds(PublishedView):
    """The largest deviation allowed for each tensor between two determinism classes."""

    classes: tuple[str, str]
    tau: dict[str, float]


class PublishedEvidence(PublishedView):
    """The response of `GET /v1/jobs/{id}/tasks/{id}`."""

    state: TaskState
    root: DigestField | None = None
    offer: OfferFields
    offer_digest: HashField
    offer_signature: SignatureField
    waves: tuple[PublishedWave, ...]
    replicas: tuple[PublishedBallot, ...]
    allowed: tuple[Thresholds, ...] | None = None
    plan: Plan | None = None
    audit_link: HashField | None = None
    audit: PublishedAudit | None = None
    hearings: tuple[PublishedHearing, ...] | None = None
    """A referee's hearings of its answers, in order."""

    @field_validator("offer")
    @classmethod
    def _can_be_signed(cls, offer: OfferFields) -> OfferFields:
        if not all(0 <= number < 2**256 for number in dict(offer).values() if isinstance(number, int)):
            raise ValueError("a number of the offer cannot be signed")
        return offer

    @property
    def committed(self) -> tuple[PublishedBallot, ...]:
        """The replicas whose commitments are shown."""
        return tuple(ballot for ballot in self.replicas if ballot.sealed is not None)
