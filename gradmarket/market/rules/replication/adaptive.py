"""`adaptive`: a worker that is proven in this class, and covered by its stake, is checked less, down to a floor.

A worker with a stake works alone and is audited: always as a newcomer, less as its record grows, never below
the floor. A worker without one is checked by votes, and audited at the floor.

BOINC's rule (its wiki, "AdaptiveReplication") trusts a host after ten valid results in a row, and then checks one in
ten of its jobs. A sleeper that is honest ten times and then lies until it is caught has 9 of its 19 accepted results
wrong, 47 %, and loses only those ten. Here it is audited before it is trusted, its wrong results are found when it is
caught, and its stake was worth more than its gain.
"""

import math
from dataclasses import replace
from typing import Final

from pydantic import Field

from gradmarket.market.rules import replication
from gradmarket.market.rules.replication import STRANGER, Lead, fixed
from gradmarket.market.terms import DOUBT, Plan

ALONE: Final = False


class Settings(replication.Votes):
    """The record and stake of the worker drawn first decide how a task is checked.

    It works alone and is audited, or there are votes.
    """

    floor: float = Field(default=0.05, gt=0.0, le=1.0)
    """The least probability of an audit, whatever the record."""
    tolerated: float = Field(default=0.02, gt=0.0, lt=1.0)
    """The share of a worker's accepted gradients that may be wrong and undetected, given its record."""
    benefit: float = Field(default=0.0, ge=0.0, le=1e6)
    """The value of a wrong gradient to its sender beyond the work it saves, in prices."""

    @property
    def gain(self) -> float:
        """The gain by a wrong gradient, in prices: at most the whole price is saved."""
        return 1.0 + self.benefit


def plan(settings: Settings, lead: Lead = STRANGER) -> Plan:
    if lead.cover < settings.gain:
        return replace(fixed.plan(settings), audit=settings.floor)
    rate = compute_worker_audit_rate(lead.standing, lead.cover, settings.floor, settings.tolerated, settings.gain)
    return Plan(first_wave=1, quorum=1, maximum=1, audit=rate)


def compute_worker_audit_rate(standing: float, cover: float, floor: float, tolerated: float, gain: float) -> float:
    """Returns the audit probability of a worker's accepted tasks; `cover` and `gain` are in prices."""
    doubt = 1.0 - standing
    by_record = 1.0 - tolerated / doubt if doubt > tolerated else 0.0
    return min(1.0, max(floor, by_record, least_rate(cover, gain)))


def least_rate(cover: float, gain: float) -> float:
    """Returns the least audit rate at which `cover` is at least the exposure: 1 - 0.05^(1/n) with n = cover / gain.

    1 where fewer than two wrong gradients are covered.
    """
    if gain <= 0.0 or math.isinf(cover):
        return 0.0
    tasks = math.floor(cover / gain)
    if tasks < 2:
        return 1.0
    return -math.expm1(math.log(DOUBT) / tasks)


def compute_unused_stake(stake: float, pending: int, gain: float) -> float:
    """Returns the part of a stake that covers nothing yet.

    Each pending task, leased or neither audited nor spared, uses up `gain` of it.
    """
    return max(0.0, stake - pending * gain)
