"""The number of a task's replicas, the rule for adding more, and the rate of its audits. Each policy is one file.

A policy is three pure things: `Settings`, `ALONE` and `plan`. The latter is called twice for a task: when it opens,
before a worker is drawn, and again when the first worker is drawn. The offer does not reveal a task's plan.

The exposure is the damage that a worker could do before it is caught, in prices of a task; a stake covers it.

Each wrong gradient is audited with probability p, independently. So n of them pass with probability (1 - p)^n, and the
first audited one is the 1/p-th on average. With confidence 95 % a worker is caught within

    n(p) = ceil(log 0.05 / log(1 - p)),    exposure = (saved + benefit) * n(p)

A worker is audited at rate p only while its free stake is at least that. This also covers a worker that cheats on all
its tasks at once, before any of them is audited: each task that is leased, or accepted and neither audited nor spared
by the draw, uses up stake of its operator, however many workers it has.

The attacks this stops: *sleeper* and *hit and run*, whose gain is at most (saved + benefit) * 1/p, a third of their
loss. *Sybils* remain in part: k identities spoil k times 1/p gradients, and each pays a stake and the audits that made
it proven. Their number gains them nothing.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, cast

from pydantic import Field, model_validator

from gradmarket.market.fields import Part
from gradmarket.market.terms import DOUBT, Digest, Plan
from graphdoc import plugins


def compute_supported_standing(audits: float) -> float:
    """Returns the highest standing that `audits` passed audits support."""
    return DOUBT ** (1.0 / audits) if audits > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Lead:
    """A policy's knowledge of the worker drawn first for a task."""

    standing: float
    """The standing of its operator in the task's determinism class (features.reputation), 0 to 1."""
    cover: float
    """The part of its stake that is at risk and covers nothing else yet, in prices of this task."""


DEFAULT: Final = "proven"
"""The policy of a job that names no replication."""
UNNAMED: Final = "fixed"
"""The policy of settings without a name, and of a job whose verifier compares other than bits."""
STRANGER: Final = Lead(0.0, 0.0)
"""No worker drawn yet, or an unknown one."""
BEST: Final = Lead(1.0, math.inf)
"""The worker that any policy checks least."""


def lies_between(plan: Plan, strictest: Plan, lightest: Plan) -> bool:
    """Returns whether a policy could give `plan` to some worker.

    `strictest` is the policy's plan for a stranger, `lightest` that for the best worker.
    """
    if plan == strictest or strictest == lightest:
        return plan == strictest
    return replace(plan, audit=lightest.audit) == lightest and lightest.audit <= plan.audit <= 1.0


class ChosenPolicy(Protocol):
    """A policy's settings in a job, with its name."""

    @property
    def name(self) -> str: ...

    @property
    def replicas(self) -> int:
        """The number of workers in the first wave."""

    @property
    def max_replicas(self) -> int: ...

    @property
    def gain(self) -> float | None:
        """The most that a wrong gradient gains, in prices, where the policy compares stakes with it; else None."""


class Votes(Part):
    """Starts with `replicas`, and adds more only on disagreement, up to `max_replicas`."""

    replicas: int = Field(default=3, ge=1, le=15)
    max_replicas: int = Field(default=5, ge=1, le=31)

    @property
    def gain(self) -> float | None:
        return None

    @model_validator(mode="after")
    def _room(self) -> "Votes":
        if self.max_replicas < self.replicas:
            raise ValueError("max_replicas is less than replicas")
        return self


@dataclass(frozen=True, slots=True)
class JobChecks:
    """A publication's terms for checking its tasks."""

    publication: Digest
    verifier: str
    max_replicas: int
    strictest: Plan
    """The plan of a task whose first worker is a stranger."""
    lightest: Plan
    """The plan of a task whose first worker is the best."""
    unaudited: tuple[Plan, ...] = ()
    """The plans of a task in a class without auditor, where the others need one."""
    relieved: tuple[Plan, ...] = ()
    """The plans of tasks whose audits a hidden seat replaces."""
    refereed: bool = False
    """Whether a referee hears answers that differ."""

    def allow(self, plan: Plan) -> bool:
        """Returns whether this plan may check a task of the job, for any drawn worker."""
        return plan in (*self.unaudited, *self.relieved) or lies_between(plan, self.strictest, self.lightest)


class ReplicationPolicy(Protocol):
    """The interface of a file in this folder."""

    @property
    def Settings(self) -> type[Any]:  # noqa: N802
        """A job's settings besides the name, with the members of `ChosenPolicy`; unknown fields are refused."""

    @property
    def ALONE(self) -> bool:  # noqa: N802
        """Whether every task has one answer, which only audits check."""

    def plan(self, settings: Any, lead: Lead = STRANGER) -> Plan:
        """Returns the plan for checking a task whose first worker is `lead`."""


def load_policy(name: str) -> ReplicationPolicy:
    """Returns the policy of that name. Raises Refused where there is none."""
    return cast(ReplicationPolicy, plugins.load_plugin(__name__, name))
