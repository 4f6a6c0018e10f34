"""The fields of a job as its requester posts it. Unknown fields are refused; `job` has the rules across fields."""

from dataclasses import replace
from typing import Any, Final, Literal

from pydantic import Field, model_validator

from gradmarket.market.fields import AmountField, Count, Note, Part, Tags, not_kept
from gradmarket.market.job_parts import (
    DEFAULT_REPLICATION,
    Aggregator,
    AuditPanel,
    AuditSpec,
    ContinueFrom,
    Deadlines,
    Downlink,
    Evaluation,
    Growth,
    JobData,
    JobModel,
    Link,
    Privacy,
    PrivateData,
    Replication,
    Sampling,
    Separation,
    StopRule,
    Verifier,
    Visibility,
)
from gradmarket.market.rules import replication, verifiers
from gradmarket.market.rules.pricing import Price
from gradmarket.market.rules.replication import BEST, STRANGER, Lead, proven
from gradmarket.market.stakes import Stakes, Vesting
from gradmarket.market.step import Optimizer, Step
from gradmarket.market.terms import Plan
from graphdoc.document.graph import Precision

STALEST: Final = 4
ALONE: Final = {"name": "fixed", "replicas": 1, "max_replicas": 1}
"""The replication of a private job that names none."""
EDITORS: Final = "$schema"
"""A file's field for its JSON schema, for editors; it is no part of the job."""


def _is_default(value: str | int | tuple[Growth, ...] | Part | None) -> bool:
    return value is None or value in ("workers", "rounds", "native", "votes", 0, (), "")


class JobFields(Part):
    """The fields of a job that a requester posts, and how its tasks are checked."""

    name: str = Field(min_length=1, max_length=200)
    model: JobModel
    data: JobData
    evaluation: Evaluation | None = None
    step: Step
    precision: Precision = "fp32"
    arithmetic: Literal["native", "reproducible"] = Field(default="native", exclude_if=_is_default)
    """`reproducible`: on kernels whose bits depend on no x86 processor, so that any two vote exactly
    (graphdoc.reproducible). Omitted where it is the default, as `visibility` is."""
    optimizer: Optimizer
    aggregator: Aggregator = Aggregator()
    uplink: Link = Link()
    downlink: Downlink = Downlink()
    continue_from: ContinueFrom | None = Field(default=None, exclude_if=_is_default)
    """The finished job that this one goes on from. Omitted where there is none, as `visibility` is."""
    rounds: Count
    tasks_per_round: int = Field(default=1, ge=1, le=10_000)
    growth: tuple[Growth, ...] = Field(default=(), max_length=100, exclude_if=_is_default)
    """Rounds from which on each round has more tasks. Omitted where there are none, as `visibility` is."""
    min_tasks: Count | None = None
    sampling: Sampling = Field(default="rounds", exclude_if=_is_default)
    """Omitted where it is the default, as `visibility` is."""
    staleness: int = Field(default=0, ge=0, le=STALEST)
    """How many rounds after its own a late answer may be merged."""
    overlap: Literal[0, 1] = Field(default=0, exclude_if=_is_default)
    """1: a round's tasks start from the parameters before the last merge, and are computed during it (rules.overlap).
    Omitted where it is 0, as `visibility` is."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Decides the initial parameters and every draw. The service draws one if none is named: the published answers of
    one job must not be those of another."""
    replication: Replication = DEFAULT_REPLICATION
    verifier: Verifier = Verifier()
    audit: AuditSpec | None = None
    disputes: Literal["votes", "referee"] = Field(default="votes", exclude_if=_is_default)
    """The way to settle a split vote: `votes` of more workers, or a `referee`, which hears those that differ and
    computes the one operation where they part. Omitted where it is the default, as `visibility` is."""
    stake: Stakes | None = None
    vesting: Vesting | None = Field(default=None, exclude_if=_is_default)
    """The part of the pay that a proven fault burns. Omitted where there is none, as `visibility` is."""
    separation: tuple[Separation, ...] = ("payout",)
    privacy: Privacy | None = Field(default=None, exclude_if=_is_default)
    """The bound on what the models disclose of one holder. Omitted where there is none, as `visibility` is."""
    norm_bound: float = Field(default=1000.0, ge=1e-9, le=1e9)
    price: Price
    budget: AmountField | None = None
    deadlines: Deadlines = Deadlines()
    stop: tuple[StopRule, ...] = ()
    tags: Tags = Field(default=(), exclude_if=_is_default)
    """Words to find the job by. The service keeps these and the note beside the job, where anybody may read them."""
    note: Note = Field(default="", exclude_if=_is_default)
    visibility: Visibility = Field(default="workers", exclude_if=_is_default)
    """Omitted where it is the default, so that publications older than this field keep their digests."""

    @model_validator(mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        if fault := not_kept(value):
            raise ValueError(fault)
        if not isinstance(value, dict):
            return value
        # nobody can repeat an answer about a holder's rows, and answers that are not compared by bits cannot be
        # compared with an auditor's: for both the default is unfit
        data, verifier, unnamed = value.get("data"), value.get("verifier"), dict[str, Any]()
        if isinstance(data, dict) and "holders" in data:
            unnamed = {"replication": ALONE}
        elif isinstance(verifier, dict) and verifier.get("name", verifiers.DEFAULT) != verifiers.DEFAULT:
            unnamed = {"replication": {"name": replication.UNNAMED}}
        return unnamed | {name: part for name, part in value.items() if name != EDITORS}

    @property
    def private(self) -> PrivateData | None:
        """The form of its rows and their holders, where the rows stay with them."""
        return self.data if isinstance(self.data, PrivateData) else None

    @property
    def by_epochs(self) -> bool:
        """Whether tasks are numbered through all rounds, so that one that a round leaves keeps its rows."""
        return self.sampling == "epochs"

    def plan(self, lead: Lead = STRANGER) -> Plan:
        """Returns the plan for checking a task whose first worker is `lead`."""
        plan = replication.load_policy(self.replication.name).plan(self.replication, lead)
        least = 0.0 if self.audit is None else self.audit.probability
        if plan.referred and plan.maximum > 1 and getattr(self.replication, "audit", None) is None:
            least = max(least, proven.compute_audit_rate(plan.maximum, self.rounds))
        return replace(plan, audit=max(plan.audit, least))

    @property
    def decided_alone(self) -> bool:
        """Whether each task has one answer, whichever worker is drawn, that is not compared under a later seed."""
        return self.plan().maximum == self.plan(BEST).maximum == 1 and not self.verifier.sketched

    @property
    def proof(self) -> int | None:
        """The audited right answers that an operator needs to vote, where the policy treats newcomers apart; else
        None."""
        return getattr(self.replication, "proof", None)

    @property
    def audited(self) -> bool:
        """Whether any of its tasks may be audited."""
        return self.plan().audit > 0.0

    @property
    def panel(self) -> AuditPanel | None:
        """The number of auditors that compute each audited task, and that must agree, where it is more than one."""
        return None if self.audit is None else self.audit.auditors
