"""The job as its requester posts it, and the publication that workers compute from.

Unknown fields are refused. Amounts are decimal strings in the token's smallest unit, digests `blake3:<hex>`.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from blake3 import blake3
from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from gradmarket.market.fields import AmountField, Chosen, Count, Name, Part, not_kept
from gradmarket.market.rules import replication, verifiers
from gradmarket.market.rules.pricing import Price
from gradmarket.market.rules.replication import BEST, STRANGER, Lead, Plan, adaptive, audited, fixed
from gradmarket.market.stakes import Stakes
from gradmarket.market.step import Optimizer, Step
from gradmarket.market.terms import Amount, Digest


def _aware(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a time has a zone, e.g. 2026-12-01T00:00:00Z")
    return value.astimezone(UTC)


DigestField = Annotated[Digest, Field(pattern=r"^blake3:[0-9a-f]{64}$")]
Time = Annotated[datetime, AfterValidator(_aware)]


class ReadyModel(Part):
    """A ready architecture by name; it is exported like any other model."""

    architecture: Name
    arguments: dict[str, Any] = Field(default_factory=dict)


class DocumentModel(Part):
    """A graph document and its initial parameters (safetensors), uploaded before."""

    document: DigestField
    parameters: DigestField
    evaluation: DigestField | None = None


class ReadyData(Part):
    ready: Literal["digits"]


class LinkedData(Part):
    manifest: DigestField


class Evaluation(Part):
    """Held-out rows, which are never used for training."""

    partition: str = "test"
    metric: Literal["accuracy", "loss"] = "accuracy"
    every: Count = 1


class Aggregator(Chosen):
    """`name` is a file of gradient/aggregators; the other fields are that aggregator's settings."""

    name: Name = "mean"


class Link(Part):
    codec: Name = "fp32"


class FixedReplication(fixed.Settings):
    name: Literal["fixed"] = "fixed"


class AdaptiveReplication(adaptive.Settings):
    """The record and stake of the worker drawn first decide how a task is checked.

    It works alone and is audited, or there are votes.
    """

    name: Literal["adaptive"]


class AuditedReplication(audited.Settings):
    """One replica, checked by audits only."""

    name: Literal["audited"]

    @property
    def replicas(self) -> int:
        return 1

    @property
    def max_replicas(self) -> int:
        return 1


def _policy(value: Any) -> str:
    return str(value.get("name", "fixed") if isinstance(value, dict) else getattr(value, "name", "fixed"))


Replication = Annotated[
    Annotated[FixedReplication, Tag("fixed")]
    | Annotated[AuditedReplication, Tag("audited")]
    | Annotated[AdaptiveReplication, Tag("adaptive")],
    Discriminator(_policy, "no_such_policy", "no policy of this name; there is fixed, audited, adaptive"),
]
"""`name` is a file of rules/replication."""


OnFailure = Literal["replay", "go_on", "pause"]


class AuditSpec(Part):
    """The requester's own auditor runs accepted tasks again, each with this probability, whoever answered.

    `on_failure` says what happens where the wrong gradient was merged already: `replay` takes the round back and
    repeats what came after it, `go_on` keeps the model as it is, `pause` leaves the decision to the requester.
    """

    probability: float = Field(gt=0.0, le=1.0)
    on_failure: OnFailure = "replay"


class Verifier(Part):
    """`exact` compares the bits of one determinism class, `tolerance` compares sketches within calibrated thresholds.

    `loss_change` compares nothing: audits check whether a gradient lowers the loss more on its own rows than on others.
    """

    name: Literal["exact", "tolerance", "loss_change"] = "exact"

    @property
    def sketched(self) -> bool:
        return verifiers.verifier(self.name).SKETCHED

    @property
    def scored(self) -> bool:
        return verifiers.verifier(self.name).SCORED


class Deadlines(Part):
    """Timeouts in seconds, and `end`, a date.

    A worker that is silent longer loses its lease, its reveal or its upload.
    """

    lease_s: int = Field(default=120, ge=1, le=86_400)
    wave_s: int = Field(default=30, ge=1, le=86_400)
    upload_s: int = Field(default=60, ge=1, le=86_400)
    end: Time | None = None


class StopAtMetric(Part):
    metric: Literal["accuracy", "loss"]
    at: float


class StopAtSpent(Part):
    spent: AmountField


class StopAtDate(Part):
    date: Time


Precision = Literal["fp32", "bf16"]
"""bf16: matrix products and convolutions in bfloat16, as in torch.autocast; parameters and answers in float32."""

Separation = Literal["operator", "payout", "network"]


Visibility = Literal["requester", "workers", "public"]
"""Who may read the trained parameters.

`requester`: its own tokens, and a worker that currently computes on them. `workers`: whoever is signed in, and anybody
may sign in. `public`: everybody, and they may read the model and manifest too.
"""


def _is_default(visibility: str) -> bool:
    return visibility == "workers"


class JobSpec(Part):
    """A training job. Workers see the model and the data."""

    name: str = Field(min_length=1, max_length=200)
    model: ReadyModel | DocumentModel
    data: ReadyData | LinkedData
    evaluation: Evaluation | None = None
    step: Step
    precision: Precision = "fp32"
    optimizer: Optimizer
    aggregator: Aggregator = Aggregator()
    uplink: Link = Link()
    downlink: Link = Link()
    rounds: Count
    tasks_per_round: int = Field(default=1, ge=1, le=10_000)
    min_tasks: Count | None = None
    staleness: Literal[0] = 0
    seed: int = Field(default=0, ge=0, lt=2**63)
    replication: Replication = FixedReplication()
    verifier: Verifier = Verifier()
    audit: AuditSpec | None = None
    stake: Stakes | None = None
    separation: tuple[Separation, ...] = ("payout",)
    norm_bound: float = Field(default=1000.0, gt=0, le=1e9)
    price: Price
    budget: AmountField | None = None
    deadlines: Deadlines = Deadlines()
    stop: tuple[StopAtMetric | StopAtSpent | StopAtDate, ...] = ()
    visibility: Visibility = Field(default="workers", exclude_if=_is_default)
    """Omitted where it is the default, so that publications older than this field keep their digests."""

    @model_validator(mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        if fault := not_kept(value):
            raise ValueError(fault)
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "JobSpec":
        if self.min_tasks is not None and self.min_tasks > self.tasks_per_round:
            raise ValueError("min_tasks: more than tasks_per_round")
        if self.downlink.codec != "fp32":
            raise ValueError("downlink.codec: only fp32 is offered")
        if self.stake is not None and not self.audited:
            raise ValueError("stake: only an audit finds what it is lost for, and no task is audited")
        if self.verifier.sketched and (fault := self._not_sketched()):
            raise ValueError(f"verifier: {self.verifier.name} {fault}")
        if self.verifier.scored and (fault := self._not_scored()):
            raise ValueError(f"verifier: {self.verifier.name} {fault}")
        if any(isinstance(rule, StopAtMetric) for rule in self.stop) and self.evaluation is None:
            raise ValueError("stop: a metric is watched only where evaluation names a partition")
        return self

    def _not_sketched(self) -> str:
        """Returns why this job cannot compare answers by sketches; empty where it can."""
        replicas, most = self.replication.replicas, self.replication.max_replicas
        if not self.audited:
            return 'takes its thresholds from audited tasks: set audit, {"probability": 0.1} say'
        if not replicas == most >= 2:
            alike = "set replication.replicas and max_replicas alike, to 2 or more"
            return f"has one wave, for a later one would know its seed: {alike}"
        return ""

    def _not_scored(self) -> str:
        """Returns why this job cannot judge answers by scores; empty where it can."""
        if not isinstance(self.replication, AuditedReplication):
            return 'scores what one worker answers: set replication to {"name": "audited", "audit": 0.2} say'
        if self.stake is not None:
            return "gives odds and no proof, and a stake is lost by proof only: leave out stake"
        return ""

    @property
    def tasks_needed(self) -> int:
        """The number of accepted tasks that close a round."""
        return self.min_tasks or self.tasks_per_round

    def plan(self, lead: Lead = STRANGER) -> Plan:
        """Returns how a task is checked whose first worker is `lead`."""
        plan = replication.policy(self.replication.name).plan(self.replication, lead)
        return plan if self.audit is None else replace(plan, audit=max(plan.audit, self.audit.probability))

    def may_check_so(self, plan: Plan) -> bool:
        """Returns whether a task of the job may be checked by this plan, whichever worker was drawn."""
        return replication.lies_between(plan, self.plan(), self.plan(BEST))

    @property
    def gain(self) -> float | None:
        """The most that a wrong gradient gains, in prices, where the policy compares stakes with it; else None."""
        return self.replication.gain if isinstance(self.replication, AdaptiveReplication) else None

    @property
    def on_failure(self) -> OnFailure:
        return "replay" if self.audit is None else self.audit.on_failure

    @property
    def audited(self) -> bool:
        """Whether any of its tasks may be audited."""
        return self.plan().audit > 0.0

    @property
    def most_expensive(self) -> Amount:
        """The cost that no run can exceed: every replica of every task is requested and agrees."""
        return Amount(self.rounds * self.tasks_per_round * self.replication.max_replicas * self.price.most)

    @property
    def deposit(self) -> Amount:
        """The deposit that is required before anything runs."""
        return self.most_expensive if self.budget is None else self.budget


class Publication(Part):
    """What a job's workers compute from, by digests. The offer's `spec` is this publication's digest."""

    job: str = Field(pattern=r"^[0-9a-f]{16}$")
    """The job's id, so that two jobs of one specification differ on-chain."""
    spec: JobSpec
    document: DigestField
    evaluation: DigestField | None
    parameters: DigestField
    manifest: DigestField

    @property
    def digest(self) -> Digest:
        return Digest("blake3:" + blake3(canonical(self.model_dump(mode="json"))).hexdigest())


def canonical(value: Any) -> bytes:
    """Returns the JSON with sorted keys and no spaces: equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
