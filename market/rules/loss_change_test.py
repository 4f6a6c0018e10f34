"""Whether an operator's gradients come from the rows it was given: a test over many scores, where no bits compare.

    change(rows) = loss(rows, x) - loss(rows, x - h g / |g|),    h = 10^-3 |x|
    passes  <=>  change(own) > change(other) for each of 3 other draws of as many rows

x are the parameters and g the gradient that was accepted. What was computed from a task's rows lowers the loss on them
more than elsewhere, once the others are drawn after the answer (Lidin et al. 2025, arXiv 2505.21684, who weigh peers by
it). Two machines may disagree in every bit, and this still holds.

One score errs often; Wald (1945) decides over all of an operator's. With p0 the share of honest gradients that pass:

    weight = log(1/4 / p0) where it passes, log(3/4 / (1 - p0)) where it does not
    convicted:  sum >= log((1 - BETA) / ALPHA)        honest:  sum <= log(BETA / (1 - ALPHA)), and it starts anew

The 1/4 needs no calibration: to a gradient that does not know the task's rows the four draws are alike, so that the own
one is the largest once in four. p0 is the lower bound at 95 % (Clopper and Pearson 1934) from trusted runs: the
auditor's own gradients of the audited tasks of the same job, the newest WINDOW of them. Below LEAST, or before RUNS,
nothing is weighed and nobody convicted.

The attacks this stops: noise, nothing, a flipped sign, a gradient of other rows. Those it does not see, because they
follow the task's rows: scaled ones, those of older parameters, those of a part of the rows, a backdoor in a few of
them. docs/loss_change.md has the rates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gradmarket.market.rules.reputation import DOUBT
from gradmarket.market.rules.secrets import tagged
from gradmarket.market.terms import Hash

OTHERS: Final = 3
"""Draws of other rows that a score is held against."""
BLIND: Final = 1.0 / (1 + OTHERS)
"""How often a gradient passes that does not know the task's rows."""
RUNS: Final = 30
"""Trusted runs before anything is weighed."""
WINDOW: Final = 100
"""Trusted runs that count, the newest: how often honest gradients pass changes while a model learns."""
LEAST: Final = 0.5
"""The least share of honest gradients that pass, for a score to say anything."""
ALPHA: Final = 1e-4
"""The probability that one whole test convicts somebody honest, where p0 holds."""
BETA: Final = 0.01
"""The probability that one whole test takes for honest who knows nothing of the rows."""
CONVICTS: Final = math.log((1.0 - BETA) / ALPHA)
CLEARS: Final = math.log(BETA / (1.0 - ALPHA))
UNSEEN: Final = "answers of older parameters, of fewer rows, of another length, with a backdoor in a few rows"
"""What passes, in words: it follows the task's rows."""
LARGEST: Final = 1e30
"""Stands for what is not finite: numbers that JSON can carry."""
_HALVINGS: Final = 40


@dataclass(frozen=True, slots=True)
class Change:
    """By how much the loss fell on the task's own rows, and on each other draw."""

    own: float
    others: tuple[float, ...]

    @property
    def passes(self) -> bool:
        return self.own > max(self.others)

    @property
    def score(self) -> float:
        """(own - largest other) / (|own| + |largest other|): -1 to 1, over 0 where it passes; 0 where both are 0."""
        other = max(self.others)
        scale = abs(self.own) + abs(other)
        return (self.own - other) / scale if scale else 0.0


class ChangeVerdict(StrEnum):
    """open: the scores decide nothing yet."""

    HONEST = "honest"
    OPEN = "open"
    CONVICTED = "convicted"


def seed(link: Hash, offer: Hash) -> Hash:
    """What draws the other rows: the link that drew the audit, which nobody knew when the answer was committed."""
    return tagged("others", link, offer)


def change(before: Sequence[float], after: Sequence[float]) -> Change:
    """From the losses on the own rows, then on each other draw; one that is not finite has not fallen at all."""
    own, *others = (_fall(*losses) for losses in zip(before, after, strict=True))
    return Change(own, tuple(others))


def honest_share(passed: int, runs: int) -> float | None:
    """p0: at least this share of honest gradients passes, with 95 % confidence; none where that says too little."""
    if runs < RUNS:
        return None
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _at_least(passed, runs, middle) < DOUBT else (low, middle)
    return low if low >= LEAST else None


def weight(passes: bool, honest: float | None) -> float:
    """What one score adds to its operator's sum, where honest gradients pass this often; 0 where nobody knows."""
    if honest is None:
        return 0.0
    return math.log(BLIND / honest) if passes else math.log((1.0 - BLIND) / (1.0 - honest))


def added(total: float, weight: float) -> float:
    """The sum after a further score: a test that ended with `honest` is over, and the next one starts from nothing."""
    return weight if verdict(total) == ChangeVerdict.HONEST else total + weight


def verdict(total: float) -> ChangeVerdict:
    if total >= CONVICTS:
        return ChangeVerdict.CONVICTED
    return ChangeVerdict.HONEST if total <= CLEARS else ChangeVerdict.OPEN


def _fall(before: float, after: float) -> float:
    fall = before - after
    return max(-LARGEST, min(LARGEST, fall)) if math.isfinite(fall) else -LARGEST


def _at_least(passed: int, runs: int, share: float) -> float:
    """The probability of so many passes or more, where each comes with this probability."""
    counts = range(passed, runs + 1)
    return math.fsum(math.comb(runs, k) * share**k * (1.0 - share) ** (runs - k) for k in counts)
