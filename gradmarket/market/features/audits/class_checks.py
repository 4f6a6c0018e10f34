"""Decides from observed answers whether the machines of one determinism class give equal answers in a job.

A worker names its class itself, and a name does not show whether its kernels give the auditor's bits for this document
and these shapes. Equality with the auditor does: no Sybil answers for the auditor, and nobody can choose the tasks. A
class is proven in a job once the auditor found the same root as each of OPERATORS operators, each on its own task.

Until then a task that one replica decides is audited for certain. This stops false class claims, which an audit
probability of 5 % would find only in the twentieth task on average. It also stops one answer shared by Sybils, since
each is checked on its own task. Where several replicas vote, the vote checks their equality, and the policy's
probability applies.

A class that no auditor asks for cannot be checked, and its name costs nothing. So where one replica decides, a job
settles only on classes that an auditor asked for. Where separate operators vote, their equality admits any class; but
an audit in a class without auditor lapses after UNHEARD_S: its task is done again, nobody is blamed, and from then on
the job settles on classes with an auditor alone. This stops the *made-up class* of one wallet, or of a quorum, which
would keep the job waiting for ever for an audit that nobody can run.

An auditor may be there and unable: out of memory, killed, or slower than it may be. An audit that ATTEMPTS of them left
unanswered lapses too, and the class then counts as one without auditor in that job for UNABLE_S.

Where an audit settles what is accepted (proven.seat_rules), a class without auditor has no such audit: there a plain
majority decides, and nothing is audited, after UNAUDITED_S without any worker of a class with one that has room. A job
in which an audit passed has seen such workers, and a gap between two of them is usual: it waits UNHEARD_S, so that
three wallets of a made-up class need not only wait for the gap. In such a vote proven operators of the class decide
alone where they are enough. Where they are not, others vote too, but not while auditors leave audits unanswered of a
job that they were able to check: a flood of fresh identities would gain an hour of votes by stopping the auditors.
"""

from collections.abc import Iterable
from typing import Final

from gradmarket.market.rules.assignment import Party
from gradmarket.market.terms import Plan

OPERATORS: Final = 3
LINKS: Final = ("worker", "operator", "payout")
"""Two answers may come from one party if any of these is equal."""
UNHEARD_S: Final = 600.0
"""Seconds after which an audit lapses where no auditor has asked for its class since as long before the job was
made."""
UNAUDITED_S: Final = 30.0
"""Seconds that a task waits for a worker of a class with an auditor before a plain vote decides without one."""
GRACE_S: Final = 120.0
"""Seconds for which an auditor counts as present after a service's start if it was present when the service stopped.

Its computing child imports torch and its loop tries again with growing pauses; workers come back with their next polls.
"""
ATTEMPTS: Final = 3
"""The number of auditors, or starts of one, that leave an audit unanswered before it lapses as not computable."""
UNABLE_S: Final = 3600.0
"""Seconds for which the class then counts as one without auditor in a job, unless an auditor answers meanwhile."""
HELD_S: Final = 7200.0
"""Seconds for which an auditor that is still computing keeps an audit: two runs of the hour that a step has."""
RECORDED_EVERY_S: Final = 15.0
"""Seconds between two records of an auditor's requests for work."""


def is_class_proven(confirmed: Iterable[Party]) -> bool:
    """Returns whether the class is proven.

    `confirmed` are the parties whose answers the auditor confirmed in the job, each by another task.
    """
    return count_surely_separate(confirmed) >= OPERATORS


def count_surely_separate(parties: Iterable[Party]) -> int:
    """Returns how many parties are surely separate: those linked by a wallet, operator or payout address count once."""
    groups: list[set[str]] = []
    for party in parties:
        names = {str(getattr(party, link)) for link in LINKS}
        linked = [group for group in groups if group & names]
        groups = [group for group in groups if not group & names]
        groups.append(names.union(*linked))
    return len(groups)


def choose_audit_rate(plan: Plan, proven: bool) -> float:
    """Returns the probability that an accepted task is audited, in a class that is `proven` or not."""
    return plan.audit if proven or plan.first_wave > 1 else 1.0
