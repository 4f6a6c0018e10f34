"""Private jobs whose rounds are summed by secure aggregation: what such a job may ask for, and the units of its sums.

All holders of the job's list are asked in every round; who is away counts as dropped out. So the list is fixed by the
publication's digest, which is on the chain before the block that draws the graphs (market.secagg.neighbours).
"""

import math
from collections.abc import Iterable
from typing import Final

import numpy as np
from pydantic import Field

from gradmarket.market.errors import Refused
from gradmarket.market.fields import Count, Part
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.normal_numbers import draw_normal
from gradmarket.market.rules.private_jobs import MEAN
from gradmarket.market.secagg import degree
from gradmarket.market.secagg.ring import FixedPoint, Integers, fixed_point, ring_for

FARTHEST: Final = 10.0
"""Deviations of a holder's noise that its numbers have room for; what is beyond, one in 2^75, is cut off there."""


class SecureAggregation(Part):
    """How many of the holders are taken to collude with the requester, and how many may drop out of a round."""

    may_collude: Count
    may_drop: int = Field(default=0, ge=0, le=1000)

    def honest(self, holders: int) -> int:
        """Returns how many of a sum's holders add their noise at least."""
        return holders - self.may_drop - self.may_collude


def find_secure_sum_fault(
    asked: SecureAggregation,
    holders: int,
    tasks: int,
    grows: bool,
    least: int | None,
    overlap: int,
    aggregator: str,
    capped: bool,
    codec: str,
) -> str:
    """Returns why a private job of these settings cannot be summed so, the field first; empty where it can.

    least: its min_tasks. capped: its answers weigh as rows.
    """
    name, stay = "data.secure_aggregation", holders - asked.may_drop
    try:
        degree.plan_group(holders, asked.may_collude, asked.may_drop)
    except Refused as refused:
        return f"{name}: {refused.detail}: {refused.remedy or 'name more holders'}"
    if tasks != holders or grows:
        return f"tasks_per_round: all {holders} holders are asked in every round: {holders}, and no growth"
    if (least or tasks) != stay:
        return f"min_tasks: of {holders} holders {asked.may_drop} may drop out of a sum: {stay}"
    if overlap:
        return "overlap: a round's graph is drawn once the round before is over: leave out overlap"
    if aggregator != MEAN:
        return f"aggregator: nobody sees the answers under a sum: leave out aggregator, which is then {MEAN}"
    if capped:
        return "data.rows_cap: nobody sees what an answer under masks weighs: leave out rows_cap"
    if codec != "fp32":
        return "uplink: under masks a number has 32 bits, whatever it was: leave out uplink"
    return ""


def compute_noise_deviation(multiplier: float, bound: float, asked: SecureAggregation, holders: int) -> float:
    """Returns that of each holder's noise: what the fewest honest ones add has multiplier * bound together."""
    return multiplier * bound / math.sqrt(asked.honest(holders))


def rounds_spent(asked: SecureAggregation, holders: int, survivors: Iterable[int]) -> float:
    """Returns how many rounds of the least noise the sums of so many survivors each spend as much as.

    Of s survivors s - C add their noise, and the accounted deviation is that of n - D - C: what a round adds to the
    square of mu (rules.privacy) is less by the ratio of both.
    """
    return sum(asked.honest(holders) / (count - asked.may_collude) for count in survivors)


def choose_sum_units(bound: float, noise: float, holders: int) -> FixedPoint:
    """Returns the units of sums of answers of an L2 norm within `bound` and noise of this deviation, in 32 bits."""
    found = fixed_point(bound + FARTHEST * noise, holders)
    _ = ring_for(holders, found.most)
    return found


def convert_to_whole_units(vector: Vector, bound: float, scale: FixedPoint, noise: float, seed: bytes) -> Integers:
    """Returns a gradient of an L2 norm within `bound` in whole units, with this holder's noise by a secret seed.

    Rounding does not carry it beyond the bound: where the nearest units would, those nearer to zero are taken. Noise is
    rounded by itself, so that the sum of what holders computed is within their bounds whatever it adds.
    """
    whole = scale.integers(vector)
    if math.ldexp(float(np.linalg.norm(whole.astype(np.float64))), scale.exponent) > bound:
        whole = np.trunc(np.ldexp(vector.astype(np.float64), -scale.exponent)).astype(np.int64)
    if noise:
        drawn = draw_normal(seed, 0, vector.size) * noise
        whole = whole + np.rint(np.ldexp(drawn, -scale.exponent)).astype(np.int64)
    return np.clip(whole, -scale.most, scale.most)
