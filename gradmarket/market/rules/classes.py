"""Tells whether the machines of one determinism class give equal answers in a job, by what was observed.

A worker names its class itself, and a name does not show whether its kernels give the auditor's bits for this document
and these shapes. Equality with the auditor does: no Sybil answers for the auditor, and nobody can choose the tasks. A
class is proven in a job once the auditor found the same root as each of OPERATORS operators, each on its own task.

Until then a task that one replica decides is audited for certain. This stops false class claims, which an audit
probability of 5 % would find only in the twentieth task on average. It also stops one answer shared by Sybils, since
each is checked on its own task. Where several replicas vote, the vote checks their equality, and the policy's
probability applies.
"""

from collections.abc import Iterable
from typing import Final

from gradmarket.market.rules import operators
from gradmarket.market.rules.assignment import Party
from gradmarket.market.task_plan import Plan

OPERATORS: Final = 3


def is_class_proven(confirmed: Iterable[Party]) -> bool:
    """Returns whether the class is proven.

    `confirmed` are the parties whose answers the auditor confirmed in the job, each by another task.
    """
    return operators.count_surely_separate(confirmed) >= OPERATORS


def choose_audit_rate(plan: Plan, proven: bool) -> float:
    """Returns the probability that an accepted task is audited, in a class that is `proven` or not."""
    return plan.audit if proven or plan.first_wave > 1 else 1.0
