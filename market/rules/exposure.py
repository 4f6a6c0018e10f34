"""What a worker could spoil before it is caught, and the stake that covers it. Amounts are in prices of a task.

Each wrong gradient is audited with probability p, independently, so n of them pass with (1 - p)^n and the first that is
audited is the 1/p-th on average. With confidence 95 % a worker is caught within

    n(p) = ceil(log 0.05 / log(1 - p)),    exposure = (saved + benefit) * n(p)

A worker is checked at p only while its free stake is at least that. One that cheats on all its tasks at once, before
any of them is audited, is covered too: what is leased, or accepted and neither audited nor spared by the draw, counts
against the stake of its operator, however many workers it has.

The attack this stops: *sleeper* and *hit and run*, whose gain is at most (saved + benefit) * 1/p, a third of what they
lose. What remains of *Sybils*: k identities spoil k times 1/p gradients, each at the price of a stake and of the audits
that made it proven; they gain by being many exactly k times nothing.
"""

import math
from typing import Final

from gradmarket.market.rules.reputation import DOUBT

CONFIDENCE: Final = 1.0 - DOUBT


def tasks_before_caught(rate: float, confidence: float = CONFIDENCE) -> float:
    """Wrong gradients within which one is audited with this confidence; infinite where nothing is audited."""
    if rate >= 1.0:
        return 1.0
    return math.ceil(math.log1p(-confidence) / math.log1p(-rate)) if rate > 0.0 else math.inf


def expected_before_caught(rate: float, share: float = 1.0) -> float:
    """Tasks on average until a worker that answers this share of them wrongly is caught: 1 / (p * share)."""
    return 1.0 / (rate * share) if rate * share > 0.0 else math.inf


def exposure(rate: float, gain: float) -> float:
    """What must be at risk for a worker that is audited at `rate` and gains `gain` by each wrong gradient."""
    return gain * tasks_before_caught(rate)


def least_rate(cover: float, gain: float) -> float:
    """The least audit rate at which `cover` is at least the exposure: 1 - 0.05^(1/n) with n = cover / gain.

    1 where not even one wrong gradient is covered.
    """
    if gain <= 0.0 or math.isinf(cover):
        return 0.0
    tasks = math.floor(cover / gain)
    if tasks < 2:
        return 1.0
    return -math.expm1(math.log(DOUBT) / tasks)


def free(stake: float, pending: int, gain: float) -> float:
    """What of a stake covers nothing yet: each task that is leased, or neither audited nor spared, holds some of it."""
    return max(0.0, stake - pending * gain)
