"""The job as its requester posts it, and the publication that workers compute from.

Unknown fields are refused. Amounts are decimal strings in the token's smallest unit, digests `blake3:<hex>`.
"""

import json
from dataclasses import replace
from typing import Any, Final, Literal

from pydantic import Field, model_validator

from gradmarket.market import plugins
from gradmarket.market.digests import blob_digest
from gradmarket.market.fields import AmountField, Count, Part, not_kept
from gradmarket.market.job_parts import (
    DEFAULT_REPLICATION,
    Aggregator,
    AuditSpec,
    Deadlines,
    DigestField,
    Evaluation,
    Growth,
    JobData,
    JobModel,
    Link,
    OnFailure,
    Precision,
    Replication,
    Sampling,
    Separation,
    StopAtDate,
    StopAtMetric,
    StopAtSpent,
    Verifier,
    Visibility,
)
from gradmarket.market.rules import growth, replication
from gradmarket.market.rules.growth import RoundSizes
from gradmarket.market.rules.pricing import Price
from gradmarket.market.rules.replication import BEST, STRANGER, Lead, Plan
from gradmarket.market.stakes import Stakes
from gradmarket.market.step import GradientStep, LocalStep, Optimizer, Step
from gradmarket.market.terms import Amount, Digest

STALEST: Final = 4
EDITORS: Final = "$schema"
"""Where a file names its JSON schema for editors; it says nothing of the job."""


def _is_default(value: str | int | tuple[Growth, ...]) -> bool:
    return value in ("workers", "rounds", 0, ())


class JobSpec(Part):
    """A training job. Workers see the model and the data."""

    name: str = Field(min_length=1, max_length=200)
    model: JobModel
    data: JobData
    evaluation: Evaluation | None = None
    step: Step
    precision: Precision = "fp32"
    optimizer: Optimizer
    aggregator: Aggregator = Aggregator()
    uplink: Link = Link()
    downlink: Link = Link()
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
        return {name: part for name, part in value.items() if name != EDITORS} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _consistent(self) -> "JobSpec":
        if self.min_tasks is not None and self.min_tasks > self.tasks_per_round:
            raise ValueError("min_tasks: more than tasks_per_round")
        if why := self._not_grown():
            raise ValueError(f"growth: {why}")
        if self.staleness and not self.leaves_tasks:
            raise ValueError('staleness: a round leaves tasks only where sampling is "epochs" and min_tasks is smaller')
        if self.overlap and self.leaves_tasks:
            raise ValueError('overlap: no round leaves tasks to the next: leave out min_tasks, or sampling at "rounds"')
        if self.stake is not None and not self.audited:
            raise ValueError("stake: only an audit finds what it is lost for, and no task is audited")
        if self.verifier.sketched and (fault := self._not_sketched()):
            raise ValueError(f"verifier: {self.verifier.name} {fault}")
        if self.verifier.scored and (fault := self._not_scored()):
            raise ValueError(f"verifier: {self.verifier.name} {fault}")
        if any(isinstance(rule, StopAtMetric) for rule in self.stop) and self.evaluation is None:
            raise ValueError("stop: a metric is watched only where evaluation names a partition")
        return self

    def _not_grown(self) -> str:
        """Returns why this job's rounds cannot grow as it says; empty where they can."""
        if self.growth and self.min_tasks is not None:
            return "min_tasks is of every round: leave out one of the two"
        return growth.fault(self.tasks_per_round, self.growth, self.rounds)

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
        if not replication.policy(self.replication.name).ALONE:
            alone = [name for name in plugins.names(replication.__name__) if replication.policy(name).ALONE]
            return f"scores what one worker answers: set replication to {' or '.join(alone)}"
        if self.stake is not None:
            return "gives odds and no proof, and a stake is lost by proof only: leave out stake"
        return ""

    def step_in(self, round_number: int) -> GradientStep | LocalStep:
        """Returns what a task of this round computes."""
        return self.step.in_round(round_number, self.rounds)

    @property
    def tasks_needed(self) -> int:
        """The number of accepted tasks that close the job's first round, and the fewest that close any."""
        return self.needed_in(0)

    def needed_in(self, round_number: int) -> int:
        """Returns the number of accepted tasks that close this round."""
        return self.min_tasks or self.sizes.of(round_number)

    @property
    def all_needed(self) -> int:
        """The number of accepted tasks that close all rounds."""
        return self.rounds * self.min_tasks if self.min_tasks else self.sizes.all

    @property
    def sizes(self) -> RoundSizes:
        """How many tasks of its own each round has."""
        return growth.sizes(self.tasks_per_round, self.growth, self.rounds)

    @property
    def by_epochs(self) -> bool:
        """Whether tasks are numbered through all rounds, so that one that a round leaves keeps its rows."""
        return self.sampling == "epochs"

    @property
    def leaves_tasks(self) -> bool:
        """Whether a round may merge without some of its tasks, which then come first in the next."""
        return self.by_epochs and self.tasks_needed < self.tasks_per_round

    def tasks_of(self, round_number: int) -> range:
        """Returns the numbers of a round's own tasks."""
        first = self.sizes.before(round_number) if self.by_epochs else 0
        return range(first, first + self.sizes.of(round_number))

    def has_task(self, round_number: int, task: int) -> bool:
        """Whether a round of the job may have a task of this number."""
        return 0 <= round_number < self.rounds and 0 <= task < self.tasks_of(round_number).stop

    def place(self, round_number: int, task: int) -> int:
        """Returns the place of a task's rows in the order in which the job takes its rows, counted from 0."""
        return task if self.by_epochs else self.sizes.before(round_number) + task

    def plan(self, lead: Lead = STRANGER) -> Plan:
        """Returns how a task is checked whose first worker is `lead`."""
        plan = replication.policy(self.replication.name).plan(self.replication, lead)
        return plan if self.audit is None else replace(plan, audit=max(plan.audit, self.audit.probability))

    def may_check_so(self, plan: Plan) -> bool:
        """Returns whether a task of the job may be checked by this plan, whichever worker was drawn."""
        return replication.lies_between(plan, self.plan(), self.plan(BEST))

    @property
    def decided_alone(self) -> bool:
        """Whether each task has one answer, whichever worker is drawn, that is not compared under a later seed."""
        return self.plan().maximum == self.plan(BEST).maximum == 1 and not self.verifier.sketched

    @property
    def gain(self) -> float | None:
        """The most that a wrong gradient gains, in prices, where the policy compares stakes with it; else None."""
        return self.replication.gain

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
        return Amount(self.sizes.all * self.replication.max_replicas * self.price.most)

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
        return blob_digest(canonical(self.model_dump(mode="json")))


def canonical(value: Any) -> bytes:
    """Returns the JSON with sorted keys and no spaces: equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
