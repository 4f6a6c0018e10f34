"""Computes the damage that a worker could do before it is caught, and the stake that covers it, in prices of a task.

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
from typing import Final

from gradmarket.market.terms import DOUBT

CONFIDENCE: Final = 1.0 - DOUBT


def tasks_before_caught(rate: float, confidence: float = CONFIDENCE) -> float:
    """Returns within how many wrong gradients one is audited with this confidence; infinite at rate 0."""
    if rate >= 1.0:
        return 1.0
    return math.ceil(math.log1p(-confidence) / math.log1p(-rate)) if rate > 0.0 else math.inf


def expected_before_caught(rate: float, share: float = 1.0) -> float:
    """Returns after how many tasks on average a worker is caught: 1 / (p * share).

    `share` is the share of its answers that are wrong.
    """
    return 1.0 / (rate * share) if rate * share > 0.0 else math.inf


def compute_exposure(rate: float, gain: float) -> float:
    """Returns the stake needed for a worker audited at `rate` that gains `gain` by each wrong gradient."""
    return gain * tasks_before_caught(rate)


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


def compute_supported_standing(audits: float) -> float:
    """Returns the highest standing that `audits` passed audits support."""
    return DOUBT ** (1.0 / audits) if audits > 0 else 0.0
