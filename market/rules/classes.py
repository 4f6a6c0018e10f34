"""Whether machines that call themselves one determinism class are one in a job: seen, never declared.

A worker names its class itself, and no name tells whether its kernels give the auditor's bits for this document and
these shapes. What does is equality with the auditor, whom no Sybil answers for, on tasks that nobody could choose: a
class is proven in a job once the auditor found the root that each of OPERATORS operators did, each on its own task.

Until then a task that one replica decides is audited for certain. The attacks this stops: a false class claim, which a
probability of 5 % would find in the twentieth task; and the one answer that Sybils share, since each is held to its own
task. Where several replicas vote, their equality is what is asked for, and the policy's probability stands.
"""

from collections.abc import Iterable
from typing import Final

from gradmarket.market.rules import operators
from gradmarket.market.rules.assignment import Party
from gradmarket.market.rules.replication import Plan

OPERATORS: Final = 3


def proven(confirmed: Iterable[Party]) -> bool:
    """By those whose answers the auditor confirmed in the job, each one's by another task."""
    return operators.separate(confirmed) >= OPERATORS


def rate(plan: Plan, proven: bool) -> float:
    """The probability that an accepted task is audited, in a class that is `proven` or not."""
    return plan.audit if proven or plan.first_wave > 1 else 1.0
