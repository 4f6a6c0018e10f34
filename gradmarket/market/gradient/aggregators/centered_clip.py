"""The mean of the answers, each limited to a radius around a centre that is updated in steps.

Karimireddy, He, Jaggi 2021, "Learning from History for Byzantine Robust Optimization", CenteredClip: from a centre v,

    v <- v + (1/n) sum_i (x_i - v) min(1, radius / |x_i - v|)

The paper starts at the last round's result. Here no state is kept between rounds: the start is the answer whose median
distance to all answers is the least. Where the job sets no radius, it is the median distance from the centre, computed
anew in each step. The paper proves it for at most a tenth of hostile answers, so `least` is ten answers for each
hostile one. All centres are weighted means of the answers, so only weights are updated, using the Gram matrix. Loss and
buffers are merged by their median (see `weighing`).
"""

import math
from collections.abc import Iterable, Iterator
from statistics import median
from typing import Final

from pydantic import Field

from gradmarket.market.gradient import aggregators
from gradmarket.market.gradient.aggregators import SIDE_BY_SIDE, Stack
from gradmarket.market.gradient.aggregators._gram import Matrix, squared_distances
from gradmarket.market.gradient.aggregators._weighing import merge_weighed, normalise_weights, squared_distances_to
from gradmarket.market.gradient.arrays import Vector

SHARDWISE: Final = False


class Settings(aggregators.Settings):
    """`hostile`: how many hostile answers a round must tolerate.

    `radius`: an L2 norm; null: the median distance.
    """

    hostile: int = Field(default=1, ge=0, le=SIDE_BY_SIDE // 10)
    radius: float | None = Field(default=None, gt=0)
    steps: int = Field(default=20, ge=1, le=1000)

    @property
    def least(self) -> int:
        return max(1, 10 * self.hostile)


def aggregate(stacks: Iterable[Stack], settings: Settings) -> Iterator[Vector]:
    return merge_weighed(stacks, lambda products, _: compute_centre_weights(products, settings))


def compute_centre_weights(products: Matrix, settings: Settings) -> list[float]:
    """Returns the weights of the answers in the centre after the last step."""
    # Equal weights for all answers with the least median distance, so that their order does not matter
    spread = [median(row) for row in squared_distances(products).tolist()]
    least = min(spread)
    centre = normalise_weights([1.0 if value == least else 0.0 for value in spread])
    for _ in range(settings.steps):
        distances = [math.sqrt(square) for square in squared_distances_to(centre, products)]
        radius = settings.radius or median(distances)
        # v (1 - mean of the shares) + sum_i share_i x_i / n, as weights
        shares = [1.0 if distance <= radius else radius / distance for distance in distances]
        count = len(shares)
        rest = max(0.0, 1.0 - math.fsum(shares) / count)
        centre = normalise_weights(
            [weight * rest + share / count for weight, share in zip(centre, shares, strict=True)]
        )
    return centre
