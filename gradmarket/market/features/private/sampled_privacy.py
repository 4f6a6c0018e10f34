"""The privacy loss of one row in steps over rows drawn by chance: the Poisson-sampled Gaussian mechanism.

Each step takes a row with probability q, apart from all other rows and steps, sums the taken rows with sensitivity 1
and adds normal noise of deviation z. Two datasets are neighbours where a row's part of every sum is zeros in one of
them (zero-out adjacency; the figure is that of adding or removing a row). A step is then equivalent to the pair P = (1
- q) N(0, z^2) + q N(1, z^2) against Q = N(0, z^2), whichever comes first (Zhu, Dong, Wang 2022, "Optimal accounting of
differential privacy via characteristic function"), as long as nobody knows which rows were drawn.

The privacy loss log(P / Q) is put on a grid by "connect the dots" (Doroshenko et al. 2022), which never understates it;
the losses of independent steps add up, so their distributions are convolved, by a Fourier transform. It is exact to
1e-16 of its largest number, and delta may be far less: so losses are weighted by exp(s loss) before, and the weight is
taken off after. s minimizes the bound by moments (Mironov 2017), so that the weighted sum has its mean there.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.features.private import holder_budget

ATOMS: Final = 2**12
"""Points of a step's outcome at which its loss is taken."""
GRID: Final = 2**16
"""Places of the grid of the losses' sum."""
NEGLIGIBLE: Final = 28.0
"""At most exp(-NEGLIGIBLE) of the weighted distribution is outside the grid."""
Reals = NDArray[np.float64]


class SampledSteps(NamedTuple):
    """Steps of one kind: `rate` is the probability of each row, 1 where a step takes every row."""

    noise_multiplier: float
    rate: float
    steps: int


@lru_cache(maxsize=1024)
def compute_sampled_epsilon(parts: Sequence[SampledSteps], delta: float) -> float:
    """Returns the epsilon at this delta of all these steps together, from above: within 1/1,000 up to 10,000 steps."""
    # steps over every row are one Gaussian mechanism (holder_budget)
    taken = [
        part if part.rate < 1.0 else SampledSteps(part.noise_multiplier / math.sqrt(part.steps), 1.0, 1)
        for part in parts
        if part.steps
    ]
    if not taken:
        return 0.0
    return max(_compute_direction(taken, delta, way) for way in (1, -1))


@lru_cache(maxsize=1024)
def count_affordable_steps(noise_multiplier: float, rate: float, delta: float, epsilon: float) -> int:
    """Returns the most steps of this kind that epsilon allows at this delta, up to holder_budget.MOST_ROUNDS.

    The search tries in turn the count where a straight line between two counts reaches epsilon, and the one half-way.
    """

    def spent(steps: int) -> float:
        return compute_sampled_epsilon((SampledSteps(noise_multiplier, rate, steps),), delta)

    low, high, at_low, at_high = 0, 1, 0.0, spent(1)
    while at_high <= epsilon and high < holder_budget.MOST_ROUNDS:
        low, at_low, high = high, at_high, min(8 * high, holder_budget.MOST_ROUNDS)
        at_high = spent(high)
    if at_high <= epsilon:
        return high
    straight = True
    while high - low > 1:
        share = (epsilon - at_low) / (at_high - at_low) if straight else 0.5
        middle = min(max(low + round(share * (high - low)), low + 1), high - 1)
        at_middle, straight = spent(middle), not straight
        low, high, at_low, at_high = (
            (middle, high, at_middle, at_high) if at_middle <= epsilon else (low, middle, at_low, at_middle)
        )
    return low


class _Losses(NamedTuple):
    """The losses of one step, and the logarithms of their probabilities."""

    losses: Reals
    logs: Reals
    steps: int

    def moment(self, power: float) -> float:
        """Returns log E exp(power * loss), of all steps together."""
        return self.steps * _log_sum(self.logs + power * self.losses)


def _compute_direction(parts: Sequence[SampledSteps], delta: float, way: int) -> float:
    """Returns the epsilon; way: 1 where the row is in the first of the two datasets, -1 where in the second."""
    steps = [_find_losses(part, delta, way) for part in parts]

    def moment(power: float) -> float:
        return math.fsum(one.moment(power) for one in steps)

    def bound(log_power: float) -> float:
        return (moment(math.exp(log_power)) - math.log(delta)) / math.exp(log_power)

    power = math.exp(_find_least(bound, -12.0, 16.0))
    top = max(bound(math.log(power)), 0.0)
    # the range of the weighted losses of all steps, but for exp(-NEGLIGIBLE) (Chernoff's bound)
    at, moves = moment(power), [power * 2.0**exponent for exponent in range(-12, 13)]
    high = min((moment(power + move) - at + NEGLIGIBLE) / move for move in moves)
    low = max((at - moment(power - move) - NEGLIGIBLE) / move for move in moves)
    width = (max(high, low + 1e-12) - low) / GRID
    first, log_weight = math.floor(low / width), 0.0
    spectrum = np.ones(GRID // 2 + 1, np.complex128)
    for one in steps:
        weighted, log_sum = _put_on_grid(one, power, width)
        spectrum *= np.fft.rfft(weighted) ** one.steps
        log_weight += one.steps * log_sum
    sums = np.fft.irfft(spectrum, GRID).clip(0.0)[(np.arange(GRID) + first) % GRID]
    places = (np.arange(GRID) + first) * width
    with np.errstate(over="ignore"):
        odds = np.exp(np.log(np.maximum(sums, 1e-300)) + log_weight - power * places)
        above = np.cumsum(odds[::-1])[::-1]
        shrunk = np.cumsum((odds * np.exp(np.minimum(top - places, 700.0)))[::-1])[::-1]
        deltas = above - np.exp(np.minimum(places - top, 700.0)) * shrunk
    beyond = np.flatnonzero(~(deltas <= delta))
    if not len(beyond):
        return max(0.0, float(places[0]))
    return max(0.0, float(places[min(int(beyond[-1]) + 1, GRID - 1)]))


def _find_losses(part: SampledSteps, delta: float, way: int) -> _Losses:
    """Returns the losses of a step; the omitted part at both ends is far below delta over all steps."""
    z, rate = part.noise_multiplier, part.rate
    reach = z * (3.0 + math.sqrt(2 * math.log(part.steps / delta)))
    x, apart = np.linspace(-reach, 1.0 + reach, ATOMS, retstep=True)
    base = -(x**2) / (2 * z * z) + math.log(apart / (z * math.sqrt(2 * math.pi)))
    with np.errstate(divide="ignore"):
        losses = np.logaddexp(np.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * z * z))
    return _Losses(losses, base + losses, part.steps) if way > 0 else _Losses(-losses, base, part.steps)


def _put_on_grid(one: _Losses, power: float, width: float) -> tuple[Reals, float]:
    """Returns a step's losses on the grid, weighted and scaled to sum to 1, and the logarithm of their former sum.

    A loss between two places counts as both of them, so that neither dataset's probability changes.
    """
    below = np.floor(one.losses / width)
    over = one.losses - below * width
    share = np.expm1(np.minimum(over, width)) / math.expm1(width) if width < 700.0 else np.exp(over - width)
    logs = one.logs + power * one.losses
    log_sum = _log_sum(logs)
    odds, place = np.exp(logs - log_sum), below.astype(np.int64) % GRID
    lower = odds * (1.0 - share) * np.exp(-(1.0 + power) * over)
    upper = odds * share * np.exp((1.0 + power) * (width - over))
    found = np.bincount(place, lower, GRID) + np.bincount((place + 1) % GRID, upper, GRID)
    whole = float(found.sum())
    return found / whole, log_sum + math.log(whole)


def _find_least(function: Callable[[float], float], low: float, high: float) -> float:
    """Returns the place where a function with one valley is least (golden section)."""
    ratio = (math.sqrt(5) - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    at_a, at_b = function(a), function(b)
    for _ in range(40):
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - ratio * (high - low)
            at_a = function(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + ratio * (high - low)
            at_b = function(b)
    return (low + high) / 2


def _log_sum(logs: Reals) -> float:
    most = float(logs.max())
    return most + math.log(float(np.exp(logs - most).sum()))
