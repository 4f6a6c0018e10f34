"""The point with the least sum of distances to all answers, by smoothed Weiszfeld steps.

Pillutla, Kakade, Harchaoui 2022, "Robust Aggregation for Federated Learning" (RFA), algorithm 2: from z = the mean,

    w_i = 1 / max(nu, |x_i - z|),    z = sum_i w_i x_i / sum_i w_i

Here nu is `smoothing` times the median distance, since gradients have no fixed scale. While less than half of the
answers are hostile, they move the result by at most a bounded multiple of the honest answers' spread. Only weights are
iterated: the distances come from the Gram matrix. Loss and buffers are merged by their median (see `weighing`).
"""

import math
from collections.abc import Iterable, Iterator
from statistics import median
from typing import Final

from pydantic import Field

from gradmarket.market.gradient import aggregators
from gradmarket.market.gradient.aggregators import SIDE_BY_SIDE, Stack
from gradmarket.market.gradient.aggregators._gram import Matrix
from gradmarket.market.gradient.aggregators._weighing import merge_weighed, normalise_weights, squared_distances_to
from gradmarket.market.gradient.arrays import Vector

SHARDWISE: Final = False


class Settings(aggregators.Settings):
    """`hostile`: how many hostile answers a round must tolerate.

    `steps`: the most steps; iteration stops earlier where no weight changes by more than `rest`.
    """

    hostile: int = Field(default=1, ge=0, lt=SIDE_BY_SIDE // 2)
    steps: int = Field(default=100, ge=1, le=1000)
    smoothing: float = Field(default=1e-6, gt=0, le=1)
    rest: float = Field(default=1e-7, ge=0, le=1)

    @property
    def least(self) -> int:
        return 2 * self.hostile + 1


def aggregate(stacks: Iterable[Stack], settings: Settings) -> Iterator[Vector]:
    return merge_weighed(stacks, lambda products, _: compute_median_weights(products, settings))


def compute_median_weights(products: Matrix, settings: Settings) -> list[float]:
    """Returns the weights after the last step, or once none changes by more than `rest`."""
    current = [1.0 / len(products)] * len(products)
    for _ in range(settings.steps):
        distances = [math.sqrt(square) for square in squared_distances_to(current, products)]
        least = settings.smoothing * median(distances)
        if least == 0.0:
            return current
        before, current = current, normalise_weights([1.0 / max(least, distance) for distance in distances])
        if max(abs(new - old) for new, old in zip(current, before, strict=True)) <= settings.rest:
            break
    return current
