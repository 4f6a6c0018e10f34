"""Private jobs whose rounds are summed by secure aggregation: the settings that such a job may have, and the units of
its sums.

All holders of the job's list take part in every round; an absent one counts as dropped out. So the list is fixed by the
publication's digest, which is on the chain before the block that draws the graphs (secure_sums.aggregation).
"""

import math
from collections.abc import Iterable
from typing import Final

import numpy as np

from gradmarket.market.errors import Refused
from gradmarket.market.features.secure_sums import degree
from gradmarket.market.features.secure_sums.ring import FixedPoint, Integers, fixed_point, ring_for
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.noise import draw_normal
from gradmarket.market.job_fields import JobFields
from gradmarket.market.job_parts import MEAN, PrivateData, SecureAggregation

FARTHEST: Final = 10.0
"""Deviations of a holder's noise for which its numbers have room; values beyond, one in 2^75, are cut off there."""


def find_secure_sum_fault(spec: JobFields) -> str:
    """Returns why the job's rounds cannot be summed under masks, the field first; empty where they can or need not."""
    data = spec.data
    if not isinstance(data, PrivateData) or data.secure_aggregation is None:
        return ""
    name, asked, holders = "data.secure_aggregation", data.secure_aggregation, len(data.holders)
    stay = holders - asked.may_drop
    try:
        degree.plan_group(holders, asked.may_collude, asked.may_drop)
    except Refused as refused:
        return f"{name}: {refused.detail}: {refused.remedy or 'name more holders'}"
    if spec.tasks_per_round != holders or spec.growth:
        return f"tasks_per_round: all {holders} holders are asked in every round: {holders}, and no growth"
    if (spec.min_tasks or spec.tasks_per_round) != stay:
        return f"min_tasks: of {holders} holders {asked.may_drop} may drop out of a sum: {stay}"
    if spec.overlap:
        return "overlap: a round's graph is drawn once the round before is over: leave out overlap"
    if spec.aggregator.name != MEAN:
        return f"aggregator: nobody sees the answers under a sum: leave out aggregator, which is then {MEAN}"
    if data.rows_cap is not None:
        return "data.rows_cap: nobody sees what an answer under masks weighs: leave out rows_cap"
    if spec.uplink.codec != "fp32":
        return "uplink: under masks a number has 32 bits, whatever it was: leave out uplink"
    return ""


def compute_noise_deviation(multiplier: float, bound: float, asked: SecureAggregation, holders: int) -> float:
    """Returns the deviation of each holder's noise: together the fewest honest ones reach multiplier * bound."""
    return multiplier * bound / math.sqrt(asked.honest(holders))


def rounds_spent(asked: SecureAggregation, holders: int, survivors: Iterable[int]) -> float:
    """Returns the number of rounds of the least noise that spend as much privacy as sums of these numbers of survivors.

    Of s survivors s - C add their noise, and the accounted deviation is that of n - D - C: a round's addition to the
    square of mu (private.holder_budget) shrinks by the ratio of both.
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
    rounded by itself, so that without it the sum of the holders' vectors is always within their bounds.
    """
    whole = scale.integers(vector)
    if math.ldexp(float(np.linalg.norm(whole.astype(np.float64))), scale.exponent) > bound:
        whole = np.trunc(np.ldexp(vector.astype(np.float64), -scale.exponent)).astype(np.int64)
    if noise:
        drawn = draw_normal(seed, 0, vector.size) * noise
        whole = whole + np.rint(np.ldexp(drawn, -scale.exponent)).astype(np.int64)
    return np.clip(whole, -scale.most, scale.most)
