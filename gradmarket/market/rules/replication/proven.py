"""`proven`: newcomers work alone, each answer audited before it is paid; proven ones vote, and only unanimity decides.

Splits are settled by an audit, so the job needs an auditor of its class. The rules are those of
market.features.proven.seat_rules, whose bounds are computed here.
"""

import math
from functools import cache
from typing import Final

from pydantic import Field

from gradmarket.market.fields import Part
from gradmarket.market.rules import replication
from gradmarket.market.rules.overlap import ROUNDS_BEHIND
from gradmarket.market.rules.replication import STRANGER, Lead
from gradmarket.market.terms import Plan

ALONE: Final = False
PROOF: Final = 16
"""Audited right answers of an operator in a class before it votes there."""
LEFT: Final = 0.9
"""The share of these that counts as enough after decay."""
SHARE: Final = 8
"""Newcomers get one task in this many."""
LAST: Final = 2
"""The last rounds, whose tasks are all audited: a lie found there would cost its worker no later work."""
ALERT: Final = 5
"""Rounds after an accepted wrong answer whose tasks are all audited: others of its ring may be at work."""
LEAST: Final = 0.2
"""The least share of unanimous tasks that is audited."""
STEP: Final = 0.05
"""Shares of audits are multiples of this."""
RING: Final = 0.3
WRONG: Final = 0.01
"""The largest share of wrong answers that a ring of RING of the workers present may leave at the end."""
BOUND: Final = 1 / 96
"""The same for a ring of any size whose members always return: p = 0.2 with three replicas."""
LONG: Final = 1000
LOOKED_BACK: Final = 20
"""Rounds that a failed audit may take back where a round has at most NARROW tasks."""
NARROW: Final = 16


class Settings(Part):
    """Newcomers work alone and are audited; proven ones vote, and an audit settles their disagreements."""

    replicas: int = Field(default=3, ge=2, le=15)
    """The votes of a task, which have to be equal."""
    audit: float | None = Field(default=None, gt=0.0, le=1.0)
    """The share of unanimous tasks that is audited. Left out: 0.2 with three replicas and 0.3 with two, and more in a
    job of fewer than 50 rounds (compute_audit_rate)."""
    proof: int = Field(default=PROOF, ge=1, le=1000)
    """Audited right answers of an operator, in its determinism class, until it votes."""

    @property
    def max_replicas(self) -> int:
        return self.replicas

    @property
    def gain(self) -> float | None:
        return None


def plan(settings: Settings, lead: Lead = STRANGER) -> Plan:
    if not is_proven(lead.standing, settings.proof):
        return Plan(first_wave=1, quorum=1, maximum=1, audit=1.0, referred=True)
    votes = settings.replicas
    audit = compute_audit_rate(votes) if settings.audit is None else settings.audit
    return Plan(first_wave=votes, quorum=votes, maximum=votes, audit=audit, referred=True)


def relieve_auditor(votes: int, hidden: bool) -> Plan:
    """Returns the plan for votes of proven workers where audits outgrow the auditor: it looks at splits alone.

    `hidden`: with one seat more in place of an audit.
    """
    seats = votes + hidden
    return Plan(first_wave=seats, quorum=seats, maximum=seats, referred=True)


def hide_seat(votes: int) -> Plan:
    """Returns the plan for votes of proven workers where no auditor exists, in as many tasks as it would audit.

    One more seat has to agree, and further workers vote on a split, within the waves that the offer's secret has.
    """
    return Plan(first_wave=votes + 1, quorum=votes + 1, maximum=2 * votes)


def is_proven(standing: float, proof: int = PROOF) -> bool:
    """Returns whether an operator of this standing (features.reputation) in a class votes there."""
    return standing >= replication.compute_supported_standing(LEFT * proof)


def compute_final_wrong(audit: float, replicas: int, proof: int = PROOF, share: int = SHARE) -> float:
    """Returns the share of all tasks left wrong by a ring that always returns under fresh identities."""
    return (1.0 - audit) / audit / (share * replicas * proof)


def compute_stock_wrong(audit: float, replicas: int, rounds: int, share: float) -> float:
    """Returns the share of `rounds` rounds left wrong by a ring that was proven before, a `share` x of the crew.

    It lies where it has all R seats, x^R of a round's tasks T, and each lie that an audit finds takes R of the crew's R
    T places from it: dx/dt = -p x^R by rounds, so of t rounds (x(0) - x(t)) (1 - p) / p stay wrong.
    """
    if rounds <= 0 or share <= 0.0:
        return 0.0
    left: float = (share ** (1 - replicas) + (replicas - 1) * audit * rounds) ** (1 / (1 - replicas))
    return (1.0 - audit) / (audit * rounds) * (share - left)


def count_final_rounds(tasks: int, rounds: int) -> int:
    """Returns how many newest rounds of `tasks` tasks a failed audit may take back, in a job of `rounds` rounds.

    In wider rounds convictions are as many more, and each repeats as many more tasks: so these rounds fall by the
    square of the tasks, and a ring makes a job repeat no more of them.
    """
    wide = (NARROW / max(NARROW, tasks)) ** 2
    return max(ROUNDS_BEHIND, min(rounds, int(LOOKED_BACK * wide)))


@cache
def compute_audit_rate(replicas: int, rounds: int | None = None) -> float:
    """Returns the least p, in steps of STEP, that bounds the lies left in a job of `rounds` rounds; None: a long one.

    At most BOUND by a ring that always returns, and at most WRONG by a proven ring of RING of the crew. Played with the
    rounds of count_final_rounds and ALERT, 0.2 would leave 1.25 % in jobs of 10 rounds of 8 tasks and 0.8 % in 20, with
    three replicas: so short jobs audit more. An honest one computes 3.25 times for a right task at most, since the last
    rounds have one answer.
    """
    for step in range(math.ceil(LEAST / STEP), round(1 / STEP)):
        rate = step * STEP
        stock = compute_stock_wrong(rate, replicas, (rounds or LONG) - LAST, RING)
        if compute_final_wrong(rate, replicas) <= BOUND and stock <= WRONG:
            return round(rate, 2)
    return 1.0
