"""Bounds the information on one holder in a private job's published models: (epsilon, delta)-differential privacy by
holder.

Two runs are neighbours where one holder's answers are zeros in one of them (zero-out adjacency, at the level of a
holder and not of a row). An answer has an L2 norm of at most C, the job's norm bound, so the sum of a round's answers
differs by C at most. The service adds normal noise of z C to each element of that sum. Over T rounds this is one
Gaussian mechanism of sensitivity C sqrt(T) and deviation z C (its composition is exact: Dong, Roth, Su 2022, "Gaussian
differential privacy", corollary 3.3). Balle and Wang 2018, theorem 8, give its least delta of an epsilon, with
mu = sqrt(T) / z:

    delta = Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu)

Drawing only some of the holders would gain nothing: payments make public who answered in which round.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gradmarket.market.job_fields import JobFields
from gradmarket.market.job_parts import Privacy

MOST_ROUNDS: Final = 1_000_000
FARTHEST: Final = 25.0
"""The number of deviations from which on the normal tail is taken from its asymptotic series."""


@dataclass(frozen=True, slots=True)
class HolderBudget:
    """The bound on what the models disclose of one holder: the job ends before a round that would spend more."""

    asked: Privacy

    @property
    def rounds(self) -> int:
        """The most rounds that epsilon allows."""
        return count_affordable_rounds(self.asked.noise_multiplier, self.asked.delta, self.asked.epsilon)

    def after(self, rounds: float) -> float:
        """Returns the epsilon that `rounds` rounds spend; a fraction counts a round with more noise than needed."""
        return compute_epsilon(self.asked.noise_multiplier, self.asked.delta, rounds)

    def find_end(self, merged: int, noised_rounds: float | None) -> str:
        """Returns why no round may follow the merged ones; empty where one may."""
        counted = merged if noised_rounds is None else noised_rounds
        if counted + 1 <= self.rounds:
            return ""
        return f"{self.after(counted):.4g} of epsilon {self.asked.epsilon:g} is spent, and another round would pass it"


def build_holder_budget(spec: JobFields) -> HolderBudget | None:
    """Returns the job's budget by holder, where it has one."""
    return None if spec.privacy is None else HolderBudget(spec.privacy)


@lru_cache(maxsize=1024)
def compute_epsilon(noise_multiplier: float, delta: float, rounds: float) -> float:
    """Returns the least epsilon at this delta after `rounds` rounds, to 1e-9 from above."""
    if rounds == 0:
        return 0.0
    mu = math.sqrt(rounds) / noise_multiplier
    if _compute_delta(mu, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while _compute_delta(mu, high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-9 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if _compute_delta(mu, middle) > delta else (low, middle)
    return high


@lru_cache(maxsize=1024)
def count_affordable_rounds(noise_multiplier: float, delta: float, epsilon: float) -> int:
    """Returns the most Gaussian mechanisms of this multiplier that epsilon allows at this delta."""
    low, high = 0, 1
    while high < MOST_ROUNDS and compute_epsilon(noise_multiplier, delta, high) <= epsilon:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if compute_epsilon(noise_multiplier, delta, middle) <= epsilon else (low, middle)
    return low


def _compute_delta(mu: float, epsilon: float) -> float:
    far = epsilon + _log_tail(mu / 2 + epsilon / mu)
    return math.exp(_log_tail(epsilon / mu - mu / 2)) - (math.exp(far) if far < 0 else 1.0)


def _log_tail(x: float) -> float:
    """Returns the logarithm of the probability that a standard normal number is above x."""
    if x < FARTHEST:
        return math.log(math.erfc(x / math.sqrt(2)) / 2)
    series = 1 - 1 / x**2 + 3 / x**4 - 15 / x**6
    return -(x**2) / 2 - math.log(x * math.sqrt(2 * math.pi)) + math.log(series)
