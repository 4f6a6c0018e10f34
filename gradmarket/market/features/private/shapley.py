"""The worth of each of a round's answers: its Shapley value in the game of lowering the requester's own loss.

The game of a round of n answers: a group S of them has the value v(S), by how much the loss on the requester's rows
falls when the group's sum alone is applied; v of nobody is 0. The Shapley value of an answer (Shapley 1953) is its gain
over the group of the answers before it, averaged over all orders. The caller measures the gain. With v(S + one) - v(S)
the values add up to v of all; the slope along the answer (`slope`) omits the answer's own curvature, and with it the
advantage of a shorter or a split answer. Equal answers have equal values, and one that changes nothing has 0. Here
orders are drawn at random in pairs, each with its reverse (Castro, Gomez, Tejada 2009; Mitchell et al. 2022, "Sampling
permutations for Shapley value estimation", for the pairs). The mean over them is unbiased, for it is one over each
order alone, and its error is returned.

A group's value is bounded by the loss before on both sides, so that one answer that ruins the model is not worth more
below nothing than an honest one can be above it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gradmarket.market.terms import Hash, Units, domain_hash

MOST_VALUES: Final = 4000
"""The most groups that are measured in a round."""
USUAL: Final = 3
"""An answer of this many times the mean share is paid the ceiling. With less, a holder at the ceiling would gain by a
second answer; with more, the floor is more of the pay."""


class Worths(NamedTuple):
    """By answer: the estimated Shapley value, and the standard error of the estimate."""

    values: tuple[float, ...]
    errors: tuple[float, ...]

    @property
    def shares(self) -> tuple[float, ...]:
        """Returns each answer's share of the sum of all positive values: from 0 to 1, together 1 at most."""
        gains = [max(0.0, value) for value in self.values]
        whole = math.fsum(gains)
        return tuple(min(1.0, gain / whole) if whole > 0.0 else 0.0 for gain in gains)


def choose_lesser_worths(one: Worths, other: Worths) -> Worths:
    """Returns for each answer the smaller of two values, with its error."""
    chosen = [min(pair) for pair in zip(zip(*one, strict=True), zip(*other, strict=True), strict=True)]
    return Worths(tuple(value for value, _ in chosen), tuple(error for _, error in chosen))


def bound_group_value(before: float, after: float) -> float:
    """Returns a group's value from the losses before and after its step: from minus the loss before to all of it.

    A loss that is not finite counts as one twice as high as before.
    """
    if not math.isfinite(before) or before <= 0.0:
        return 0.0
    return max(-before, min(before, before - after)) if math.isfinite(after) else -before


def slope(before: float, forward: float, back: float) -> float:
    """Returns half the gain of a forward step plus the loss of its reverse, bounded like a group's value."""
    return (bound_group_value(before, forward) - bound_group_value(before, back)) / 2


def draw_orders(count: int, draws: int, seed: Hash) -> list[tuple[int, ...]]:
    """Returns `draws` pairs of orders of `count` answers, each with its reverse: the same from the same seed."""
    drawn = []
    for draw in range(draws):
        keys = [domain_hash("order", seed, draw.to_bytes(8, "big"), one.to_bytes(8, "big")) for one in range(count)]
        order = tuple(sorted(range(count), key=keys.__getitem__))
        drawn += [order, order[::-1]]
    return drawn


def estimate_values(drawn: Sequence[Sequence[int]], added: Callable[[Sequence[int]], Sequence[float]]) -> Worths:
    """Returns the estimate from pairs of orders. `added` gives each answer's gain over those before it in an order.

    The standard errors of the means are infinite for a single pair.
    """
    found = [[value for _, value in sorted(zip(order, added(order), strict=True))] for order in drawn]
    pairs = [[(a + b) / 2 for a, b in zip(*pair, strict=True)] for pair in zip(found[::2], found[1::2], strict=True)]
    count, columns = len(pairs), list(zip(*pairs, strict=True))
    means = tuple(math.fsum(column) / count for column in columns)
    squares = (math.fsum((one - mean) ** 2 for one in column) for column, mean in zip(columns, means, strict=True))
    return Worths(means, tuple(math.sqrt(each / (count * (count - 1))) if count > 1 else math.inf for each in squares))


def compute_worth_pay(share: float, weight: float, floor: Units, ceiling: Units) -> Units:
    """Returns the pay of an answer of this share beyond the floor, which counts against it, in whole units.

    weight: how many answers the round has, or all of its rows over the cap where answers weigh as rows. A round pays by
    worth ceiling * weight / USUAL at most, however many wallets divide the rows among them.
    """
    return Units(max(0, min(int(ceiling), math.floor(ceiling * (share * weight / USUAL))) - floor))
