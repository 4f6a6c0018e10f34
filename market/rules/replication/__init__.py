"""How many replicas a task gets, when to ask for another, and how often it is audited. One policy a file.

A policy is two pure things: `Settings` and `plan`. It is asked twice about a task: when it opens, before anybody is
drawn, and again when the first worker is drawn. The offer does not say which plan a task has.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gradmarket.market import plugins


@dataclass(frozen=True, slots=True)
class Lead:
    """The worker drawn first for a task, as far as a policy may look."""

    standing: float
    """Of its operator in the task's determinism class (rules.reputation), 0 to 1."""
    cover: float
    """What of its stake is at risk and covers nothing else yet, in prices of this task."""


STRANGER: Final = Lead(0.0, 0.0)
"""Nobody drawn yet, or nobody known."""
BEST: Final = Lead(1.0, math.inf)
"""Whom any policy checks least."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How one task is checked."""

    first_wave: int
    """Workers that the first wave wants, the lead among them."""
    quorum: int
    """Agreeing ballots that decide, where they are also more than half of all committed."""
    maximum: int
    """Commitments beyond which nobody is asked."""
    audit: float = 0.0
    """The probability that the task is audited once it is accepted."""

    def decides(self, committed: int, best: int) -> bool:
        """Whether `best` agreeing ballots of `committed` replicas are a quorum."""
        return best >= self.quorum and 2 * best > committed

    def next_wave(self, committed: int, best: int) -> int:
        """The fewest further workers that could still crown the largest group, or 0 where none can."""
        further = range(1, self.maximum - committed + 1)
        return next((more for more in further if self.decides(committed + more, best + more)), 0)


def lies_between(plan: Plan, strictest: Plan, lightest: Plan) -> bool:
    """Whether a policy with these two plans, a stranger's and the best worker's, gives `plan` to anybody."""
    if plan == strictest or strictest == lightest:
        return plan == strictest
    return replace(plan, audit=lightest.audit) == lightest and lightest.audit <= plan.audit <= 1.0


class Votes(BaseModel):
    """`replicas` first; more only on disagreement, up to `max_replicas`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    replicas: int = Field(default=3, ge=1, le=15)
    max_replicas: int = Field(default=5, ge=1, le=31)

    @model_validator(mode="after")
    def _room(self) -> "Votes":
        if self.max_replicas < self.replicas:
            raise ValueError("max_replicas is less than replicas")
        return self


class ReplicationPolicy(Protocol):
    """What a file in this folder offers."""

    @property
    def Settings(self) -> type[Any]:  # noqa: N802
        """What a job says beside the name; unknown fields are refused."""

    def plan(self, settings: Any, lead: Lead = STRANGER) -> Plan:
        """How a task that `lead` was drawn for is checked."""


def policy(name: str) -> ReplicationPolicy:
    """The policy of that name. Raises Refused where there is none."""
    return cast(ReplicationPolicy, plugins.load(__name__, name))
