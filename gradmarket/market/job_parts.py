"""The parts of a job's specification, as its requester posts them. Unknown fields are refused."""

from typing import Annotated, Any, Final, Literal, Union

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    Tag,
    TypeAdapter,
    create_model,
    model_validator,
)

from gradmarket.market.fields import SHORT_ID, Chosen, Count, DigestField, Name, Part, Time
from gradmarket.market.manifest import Inputs
from gradmarket.market.rules import replication, verifiers
from gradmarket.market.rules.metric_names import MetricName
from gradmarket.market.rules.overlap import MOST_OPEN, ROUNDS_BEHIND
from gradmarket.market.rules.replication import ChosenPolicy
from gradmarket.market.rules.stopping import StopAtDate, StopAtMetric, StopAtPatience, StopAtSpent, read_stop_rule
from gradmarket.market.signing import NamedAddress
from graphdoc import plugins

MOST_HOLDERS: Final = 1000
MOST_CLAIMS: Final = 16
"""Claims of a round: each hashes its payloads once more when they are merged."""


class ReadyModel(Part):
    """A ready architecture by name; it is exported like any other model."""

    architecture: Name
    arguments: dict[str, Any] = Field(default_factory=dict)


class DocumentModel(Part):
    """A graph document and its initial parameters (safetensors), uploaded before."""

    document: DigestField
    parameters: DigestField
    evaluation: DigestField | None = None
    metrics: DigestField | None = Field(default=None, exclude_if=lambda value: value is None)
    """A document whose metrics are of all held-out rows together (docs/job.md)."""


class Continued(Part):
    """The job whose parameters and optimizer state this one starts from. Its requester names `job`; the rest, which
    decides every bit of what follows, the service takes from that job's end, and publishes."""

    job: str = Field(pattern=SHORT_ID)
    rounds: int = Field(default=0, ge=0)
    """How many rounds came before this job's, those of the jobs that `job` continues included."""
    tasks: int = Field(default=0, ge=0)
    """How many tasks these rounds had."""
    parameters: DigestField | None = None
    optimizer_state: DigestField | None = None


ContinueFrom = Annotated[
    Continued,
    BeforeValidator(
        lambda value: {"job": value} if isinstance(value, str) else value, json_schema_input_type=str | Continued
    ),
]
"""A job's id alone stands for the job."""


class ReadyData(Part):
    ready: Literal["digits"]


class LinkedData(Part):
    manifest: DigestField


def _is_none(value: Any) -> bool:
    return value is None


class SecureAggregation(Part):
    """How many of the holders are taken to collude with the requester, and how many may drop out of a round."""

    may_collude: Count
    may_drop: int = Field(default=0, ge=0, le=1000)

    def honest(self, holders: int) -> int:
        """Returns how many of a sum's holders add their noise at least."""
        return holders - self.may_drop - self.may_collude


class PrivateData(Part):
    """Rows that stay with their holders: what a row is, and who computes on rows of its own (docs/private.md)."""

    inputs: Inputs
    holders: tuple[NamedAddress, ...] = Field(min_length=1, max_length=MOST_HOLDERS)
    """The only workers that get its tasks, by their wallets' addresses: nobody can compute their answers again."""
    least_rows: Count = 1
    """The fewest rows that a holder takes part with."""
    rows_cap: int | None = Field(default=None, ge=1, le=1_000_000, exclude_if=_is_none)
    """Answers weigh as their holders' rows, each up to this number; alike where it is null."""
    manifest: DigestField | None = None
    """Partitions of the requester's own, which are measured on and never trained on; none without `evaluation`."""
    secure_aggregation: SecureAggregation | None = Field(default=None, exclude_if=_is_none)
    """Where it is named, the requester sees a round's sum and no answer (docs/secure_aggregation.md)."""

    @model_validator(mode="after")
    def _apart(self) -> "PrivateData":
        if len(set(self.holders)) != len(self.holders):
            raise ValueError("holders: an address is listed twice: remove one")
        return self


def _choose_model_kind(value: Any) -> str:
    asked = value if isinstance(value, dict) else vars(value) if isinstance(value, Part) else {}
    return "document" if {"document", "parameters"} & asked.keys() else "ready"


def _choose_data_kind(value: Any) -> str:
    asked = value if isinstance(value, dict) else vars(value) if isinstance(value, Part) else {}
    if {"holders", "inputs"} & asked.keys():
        return "private"
    return "linked" if "manifest" in asked else "ready"


JobModel = Annotated[
    Annotated[ReadyModel, Tag("ready")] | Annotated[DocumentModel, Tag("document")], Discriminator(_choose_model_kind)
]
JobData = Annotated[
    Annotated[ReadyData, Tag("ready")] | Annotated[LinkedData, Tag("linked")] | Annotated[PrivateData, Tag("private")],
    Discriminator(_choose_data_kind),
]
"""The union is decided by a field, so that an error names the kind that was meant."""


class Privacy(Part):
    """The bound, epsilon and delta, on what the models disclose of one holder; the job ends before it is passed."""

    noise_multiplier: float = Field(ge=1e-3, le=1e6)
    """Deviation of the normal noise on each element of the sum of a round's answers, in norm bounds.

    With less than the least, a single round spends more than the most that epsilon may be.
    """
    epsilon: float = Field(gt=0, le=1e4)
    """The job ends before a round that would spend more."""
    delta: float = Field(ge=1e-15, lt=1)
    """The most that an event's probability may exceed exp(epsilon) times its probability without the holder.

    Less than one over the number of holders: one part in n would allow to disclose all of one holder.
    """


class Evaluation(Part):
    """Held-out rows, which are never used for training."""

    partition: str = Field(default="test", max_length=200)
    metric: MetricName = "accuracy"
    every: Count = 1
    metrics: tuple[MetricName, ...] = Field(default=(), max_length=16, exclude_if=lambda value: value == ())
    """Of all held-out rows together (rules.metric_names). Omitted where there are none, so that older publications keep
    their digests."""

    def is_due(self, number: int, rounds: int) -> bool:
        """Returns whether the parameters after round `number`, from 0 on, of `rounds` rounds are evaluated."""
        return (number + 1) % self.every == 0 or number + 1 == rounds


MEAN: Final = "mean"


class Aggregator(Chosen):
    """`name` is a file of gradient/aggregators; the other fields are that aggregator's settings."""

    name: Name = MEAN


class _ReadAs:
    """Reads a field as a type that is only known once the plug-ins are listed."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def __get_pydantic_core_schema__(self, _source: Any, handler: GetCoreSchemaHandler) -> Any:
        return handler.generate_schema(self._kind)


def _choose_policy_name(value: Any) -> str:
    default = replication.UNNAMED
    return str(value.get("name", default) if isinstance(value, dict) else getattr(value, "name", default))


def _with_name(name: str) -> Any:
    """Returns the settings of a policy, with its name; the plain vote alone may be left unnamed."""
    settings = replication.load_policy(name).Settings
    kind: Any = (Literal[name], name if name == replication.UNNAMED else ...)
    model = create_model(f"{name.title()}Replication", __base__=settings, __doc__=settings.__doc__, name=kind)
    return Annotated[model, Tag(name)]


_POLICIES: Final = plugins.list_plugin_names(replication.__name__)
_NO_POLICY: Final = f"no policy of this name: choose one of {', '.join(_POLICIES)}"
Replication = Annotated[
    ChosenPolicy,
    _ReadAs(
        Annotated[
            Union[tuple(map(_with_name, _POLICIES))],  # noqa: UP007
            Discriminator(_choose_policy_name, "no_such_policy", _NO_POLICY),
        ]
    ),
]
"""`name` is a file of rules/replication; the other fields are that policy's settings."""
DEFAULT_REPLICATION: Final = TypeAdapter[ChosenPolicy](Replication).validate_python({"name": replication.DEFAULT})


MOST_AUDITORS: Final = 7
SEATS_EACH: Final = 4
"""Auditors of one audit at most, for each that is asked at first: then it ends without an answer."""


class AuditPanel(Part):
    """`count` auditors of separate operators are asked, and `agree` equal answers decide."""

    count: int = Field(ge=2, le=MOST_AUDITORS, strict=True)
    agree: int = Field(ge=2, le=MOST_AUDITORS, strict=True)

    @model_validator(mode="after")
    def _decides(self) -> "AuditPanel":
        if self.agree > self.count:
            raise ValueError(
                f"agree: {self.count} auditors cannot give {self.agree} answers: raise count, or lower agree"
            )
        if 2 * self.agree <= self.count:
            raise ValueError(f"agree: two answers of {self.count} can have {self.agree} each: ask for more than half")
        return self

    @property
    def most_seats(self) -> int:
        return SEATS_EACH * self.count


OnFailure = Literal["replay", "go_on", "pause"]


class AuditSpec(Part):
    """The requester's own auditor runs accepted tasks again, each with this probability, whoever answered.

    `on_failure` decides on a wrong gradient that was merged already: `replay` takes the round back and
    repeats what came after it, `go_on` keeps the model as it is, `pause` leaves the decision to the requester.
    `planted`, `claims` and `auditors` belong to features of these names. With a larger `final_after` fewer lies of
    patient colluders stay: a failed audit has all answers of this many rounds audited, whose payloads are kept. Left
    out, it is 20 rounds of at most 16 tasks in a job of `proven`, fewer of wider ones, and else two.
    """

    probability: float = Field(gt=0.0, le=1.0, strict=True)
    on_failure: OnFailure = "replay"
    planted: float = Field(default=0.0, ge=0.0, le=1.0, strict=True, exclude_if=lambda value: value == 0.0)
    claims: int = Field(default=0, ge=0, le=MOST_CLAIMS, strict=True, exclude_if=lambda value: value == 0)
    auditors: AuditPanel | None = Field(default=None, exclude_if=lambda value: value is None)
    final_after: int | None = Field(
        default=None,
        ge=ROUNDS_BEHIND,
        le=MOST_OPEN,
        strict=True,
        exclude_if=lambda value: value is None,
    )


class Verifier(Part):
    """`name` is a file of rules/verifiers, which decides which answers agree."""

    name: Annotated[str, _ReadAs(Literal[plugins.list_plugin_names(verifiers.__name__)])] = verifiers.DEFAULT

    @property
    def sketched(self) -> bool:
        return verifiers.load_verifier(self.name).SKETCHED

    @property
    def scored(self) -> bool:
        return verifiers.load_verifier(self.name).SCORED


class Growth(Part):
    """From round `round` on, each round has `tasks` tasks (rules.growth)."""

    round: Count
    tasks: int = Field(ge=1, le=10_000)


class Deadlines(Part):
    """Timeouts in seconds, and `end`, a date.

    A worker that is silent longer loses its lease, its reveal or its upload.
    """

    lease_s: int = Field(default=120, ge=1, le=86_400)
    wave_s: int = Field(default=30, ge=1, le=86_400)
    upload_s: int = Field(default=60, ge=1, le=86_400)
    end: Time | None = None


def _choose_stop_kind(value: Any) -> str:
    asked = value if isinstance(value, dict) else vars(value) if isinstance(value, Part) else {}
    return "at_" + next((name for name in ("spent", "date", "patience") if name in asked), "metric")


def _take_text(schema: dict[str, Any]) -> None:
    """Has the schema of a stop rule take its text too."""
    schema["oneOf"] = [*schema["oneOf"], {"type": "string", "examples": ["auc > 0.9"]}]


StopRule = Annotated[
    Annotated[StopAtMetric, Tag("at_metric")]
    | Annotated[StopAtPatience, Tag("at_patience")]
    | Annotated[StopAtSpent, Tag("at_spent")]
    | Annotated[StopAtDate, Tag("at_date")],
    Discriminator(_choose_stop_kind),
    BeforeValidator(read_stop_rule),
    Field(json_schema_extra=_take_text),
]
"""Decided by a field, so that an error names the kind that was meant; or text (stopping.read_stop_rule)."""


def _refuse_draws(value: Any) -> Any:
    if value == "poisson":
        raise ValueError('holders draw their own rows by chance: leave it out, and name "sampling" in step.per_row')
    return value


Sampling = Annotated[Literal["rounds", "epochs"], BeforeValidator(_refuse_draws)]
"""Which rows tasks take: `rounds` shuffles all rows anew for every round; `epochs` takes every row of a partition once
before any again, and the rows of a task that a round leaves are first in line in the next."""


Separation = Literal["operator", "payout", "network"]


Visibility = Literal["requester", "workers", "public"]
"""The readers of the trained parameters.

`requester`: its own tokens, and a worker that currently computes on them. `workers`: every signed-in wallet, and
anybody may sign in. `public`: everybody, and they may read the model and manifest too.
"""


class Link(Part):
    codec: Name = "fp32"

    @property
    def small(self) -> bool:
        """Whether values are rounded to fewer bytes than they have."""
        return self.codec != "fp32"


class FirstUpdates(Part):
    """The updates of the first rounds, in which parameters change most."""

    codec: Name
    rounds: Count
    """How many rounds, from round 0 on."""


class Downlink(Link):
    first: FirstUpdates | None = Field(default=None, exclude_if=_is_none)
    """Rounds whose updates have another codec. Omitted where there are none, so that older publications keep their
    digests."""

    @model_validator(mode="after")
    def _all_small(self) -> "Downlink":
        if self.first is not None and "fp32" in (self.codec, self.first.codec):
            raise ValueError("first: updates have a codec for gradients in all rounds, or in none")
        return self

    def codec_of(self, number: int) -> str:
        """Returns the codec of the update that a round publishes."""
        return self.first.codec if self.first is not None and number < self.first.rounds else self.codec
