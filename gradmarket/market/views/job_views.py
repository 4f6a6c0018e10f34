"""A job, its rounds, its counts and its coverage of the data's rows, as the API answers them."""

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    GetPydanticSchema,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
)

from gradmarket.market.fields import AmountField, Count, DeferredModel, DigestField, Part
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.terms import JobId, JobState, RoundState
from gradmarket.market.views.payment_views import SettlementView, ToSignView, VestView
from gradmarket.market.views.trust_views import TrustView
from gradmarket.market.wire.poll import StepFault


class NewerPart(dict[str, Any]):
    """A specification or publication with fields that this version does not know, unchanged.

    Nobody may compute from it: the meaning of an unknown field is unknown, and digests cover it.
    """


def _known_or_newer(value: Any, known: ValidatorFunctionWrapHandler) -> Any:
    try:
        return known(value)
    except ValidationError:
        if not isinstance(value, dict):
            raise
        return NewerPart(value)


def _or_newer(kind: type[BaseModel]) -> GetPydanticSchema:
    """Returns the annotation of a field that reads a `kind` or else a NewerPart; its JSON schema is the `kind`'s."""
    return GetPydanticSchema(lambda _source, handler: handler(Annotated[kind, WrapValidator(_known_or_newer)]))


KnownSpec = Annotated[JobSpec | NewerPart, _or_newer(JobSpec)]
KnownPublication = Annotated[Publication | NewerPart, _or_newer(Publication)]


class Costs(DeferredModel):
    """`price`: of a gradient in the newest round; of a draft, at most. `at_most`: every replica of every task is asked
    for and agrees, each at the highest price. `deposited` is the part that the contract holds."""

    price: str
    at_most: str
    budget: str
    deposited: str
    earned: str
    refunded: str


class FaultView(DeferredModel):
    """The failure of `parties` separate workers, in the words of one of them."""

    fault: StepFault
    round: int
    task: int
    parties: int


class PrivacyView(DeferredModel):
    """The bound on what the rounds so far disclose of one holder."""

    epsilon: float
    """The job ends before it is passed."""
    delta: float
    """The probability that epsilon does not bound."""
    spent: float
    """The epsilon of the rounds that are merged."""
    rounds: int
    """The most rounds that epsilon allows."""


class RowPrivacyView(PrivacyView):
    """The bound on what the rounds so far disclose of a row of a holder with the fewest rows that was in all."""

    uses: int
    """How often such a row was used at most."""


class CoverageCounts(DeferredModel):
    """Tasks in updates; those of them in a later update than their round's; and those whose rows are in none yet."""

    used: int
    late: int
    waiting: int


class JobView(DeferredModel):
    id: str
    name: str
    state: JobState
    reason: str
    """Why the job makes no progress, or why it ended."""
    remedy: str = ""
    """The command that makes a paused job go on, or ends it; empty for others, and from older services."""
    fault: FaultView | None
    """The fault that paused the job, if its document or data are at fault."""
    notice: str
    tags: list[str] = []
    """Its requester's labels; none from older services."""
    note: str = ""
    spec: KnownSpec
    publication: KnownPublication | None
    spec_digest: str | None
    chain_job: int | None
    unit: str
    costs: Costs
    round: int | None
    rounds: int
    accepted: int
    rejected: int
    loss: float | None
    metrics: dict[str, float] | None
    parameters: str | None
    """Digest of the newest parameters."""
    best_round: int | None = None
    """The round after which the evaluation's metric was best; its parameters are kept. None where none was measured,
    and from older services."""
    determinism_class: str | None
    class_proven: bool
    """Whether audits confirmed three operators in that class; until then tasks that one replica decides are audited."""
    checks: str = ""
    """How its answers are decided just now, where an auditor matters, and whose pay waits; empty for others."""
    coverage: CoverageCounts | None = None
    """Of a job whose rows are taken by epochs; None of others, and from older services."""
    trust: TrustView | None = None
    """None where no right answer is known yet, and from older services."""
    privacy: PrivacyView | None = None
    """Of a private job that names its privacy; None of others, and from older services."""
    row_privacy: RowPrivacyView | None = None
    """Of a private job whose step names it; None of others, and from older services."""
    vest: VestView | None = None
    """Of a job that vests; None of others, and from older services."""
    task_flops: int | None
    task_peak_bytes: int | None
    expiry: str | None
    claim_until: str | None
    created_at: str | None
    ended_at: str | None


class ListedJob(DeferredModel):
    """A worker's part of a JobView: it serves markets of several versions at once."""

    model_config = ConfigDict(frozen=True)
    id: JobId
    name: str = ""
    state: JobState
    reason: str = ""
    publication: Publication | None = None
    """Null for one with fields that this version does not know, too: it cannot be computed from."""
    chain_job: int | None = None

    @field_validator("publication", mode="wrap")
    @classmethod
    def _known(cls, value: Any, known: ValidatorFunctionWrapHandler) -> Any:
        try:
            return known(value)
        except ValidationError:
            return None


class Extension(Part):
    """More rounds for a job, and the most that they may cost together; without a `budget`, their highest cost."""

    rounds: Count
    budget: str | None = None


class Funded(JobView):
    """`to_sign`: transactions for the owner of the funds, in this order; none where the service owns them."""

    to_sign: list[ToSignView]


class DriftView(DeferredModel):
    """The number of `operators` whose accepted answers the merges up to this one could compare; those that push the
    model one way by more than honest errors could are `leaning`. The others' values are not published."""

    operators: int
    leaning: list[str]


class RoundView(DeferredModel):
    number: int
    state: RoundState
    price: str
    """The price of each of its gradients."""
    parameters: str
    updated: str | None
    optimizer_state: str | None
    loss: float | None
    metrics: dict[str, float] | None
    drift: DriftView | None
    opened_at: str | None
    closed_at: str | None


class CheckpointView(DeferredModel):
    """The parameters after a round."""

    round: int
    parameters: str
    """Their digest."""
    stored: bool
    """Whether the service still has them: the newest, every tenth and the best are kept."""
    best: bool
    """Whether the evaluation's metric was best after this round."""
    loss: float | None
    metrics: dict[str, float] | None


class UpdateView(DeferredModel):
    """An update in few bytes, and the parameters before and after it, by digest."""

    before: DigestField
    update: DigestField
    updated: DigestField


class UpdatePath(DeferredModel):
    """The updates that lead to the parameters that a round's tasks start from, the newest first; none where whole
    parameters take fewer bytes."""

    updates: list[UpdateView]


class Stats(DeferredModel):
    rounds: int
    tasks: int
    accepted: int
    rejected: int
    replicas: dict[str, int]
    uploads: int
    payload_bytes: int
    download_bytes: int | None = None
    """One set of parameters for each replica, or one update where rounds publish updates, without the savings of caches
    and stores in between. None before the job is published."""
    compute_seconds: float
    first_accepted_seconds: float | None
    expected_hourly: str | None = None
    """The hourly pay of one more worker, waiting included, by the job's newest rounds; in the token's smallest
    unit. None where nobody was paid in the last hour, and from older services."""
    settlements: list[SettlementView]


class JobPay(DeferredModel):
    """A worker's part of a job's Stats."""

    model_config = ConfigDict(frozen=True)
    expected_hourly: AmountField | None = None
