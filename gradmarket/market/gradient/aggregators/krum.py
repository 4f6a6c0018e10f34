"""The answer closest to its neighbours, or the mean of the `chosen` closest ones (Multi-Krum).

Blanchard, El Mhamdi, Guerraoui, Stainer 2017, "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent".
With n answers of which f are hostile, the score of answer i is

    s(i) = sum of |x_i - x_j|^2 over the n - f - 2 answers j that lie closest to i

and the answers with the least scores are taken; among equal scores the shorter answer. The guarantee needs n >= 2 f + 3
and chosen <= n - f - 2. Loss and buffers are merged by their median (see `weighing`).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pydantic import Field

from gradmarket.market.gradient import aggregators
from gradmarket.market.gradient.aggregators import SIDE_BY_SIDE, Stack
from gradmarket.market.gradient.aggregators._gram import Matrix, squared_distances
from gradmarket.market.gradient.aggregators._weighing import merge_weighed
from gradmarket.market.gradient.arrays import Vector

SHARDWISE: Final = False


class Settings(aggregators.Settings):
    """`hostile`: the f of the guarantee. `chosen`: how many answers are averaged."""

    hostile: int = Field(default=1, ge=0, lt=SIDE_BY_SIDE // 2 - 1)
    chosen: int = Field(default=1, ge=1, lt=SIDE_BY_SIDE)

    @property
    def least(self) -> int:
        return max(2 * self.hostile + 3, self.chosen + self.hostile + 2)


def aggregate(stacks: Iterable[Stack], settings: Settings) -> Iterator[Vector]:
    return merge_weighed(stacks, lambda products, ranked: compute_krum_weights(products, ranked, settings))


def compute_krum_weights(products: Matrix, ranked: Sequence[int], settings: Settings) -> list[float]:
    """Returns 1 / chosen for each answer that is taken, 0 for the others."""
    hostile = settings.hostile
    neighbours = len(products) - hostile - 2
    distances = squared_distances(products).tolist()
    others = (row[:index] + row[index + 1 :] for index, row in enumerate(distances))
    scores = [math.fsum(sorted(row)[:neighbours]) for row in others]
    taken = set(sorted(ranked, key=scores.__getitem__)[: settings.chosen])
    return [1.0 / settings.chosen if index in taken else 0.0 for index in range(len(scores))]
