"""Measures what answers are worth by the sums of groups of them, of which each is a step of its own (rules.shapley).

An answer is worth the lesser of two things: what it adds as it is, and what it adds without what everybody knew before.
That is its part along the latest updates of the model, which whoever reads the models can send back without a row of
its own; nothing is left of such an answer. What it adds as it is counts too, or an answer might undo those updates.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.codecs import Codec
from gradmarket.market.gradient.payload import decode_tensors
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.gradient.round_merge import MergedAnswer
from gradmarket.market.rules.shapley import Worths, bounded, lesser, values

KNOWN: Final = 2
"""Latest updates that are taken out."""
PARALLEL: Final = 1e-9
"""An update that differs from those after it by less of its length has no direction of its own."""
Floats = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True)
class GroupSteps:
    """`before` are the round's parameters, `answers` all of the round, `rate` what the merged mean is multiplied by.

    A group's step is its part of the whole round's: whoever answered, the sum is divided by the number of all answers.
    earlier: parameters of the rounds before, the latest first.
    """

    layout: Layout
    codec: Codec
    before: Arrays
    answers: Sequence[MergedAnswer]
    rate: float
    earlier: Sequence[Arrays] = ()

    def worths(self, drawn: Sequence[Sequence[int]], loss: Callable[[Arrays], float]) -> Worths:
        """Returns what the answers are worth by these pairs of orders; `loss` is that of parameters."""
        before = loss(self.before)

        def gains(order: Sequence[int], known: bool) -> list[float]:
            return [bounded(before, loss(after)) for after in self.along(order, known)]

        whole = values(drawn, partial(gains, known=True))
        return lesser(whole, values(drawn, partial(gains, known=False))) if self._known else whole

    def along(self, order: Sequence[int], known: bool = True) -> Iterator[Arrays]:
        """Yields the parameters after the step of each prefix of an order of answers, the shortest first.

        known: with what everybody knew before. Buffers stay as they were. Memory is an answer's, a sum and KNOWN
        updates in float64, and a copy of the parameters. Raises PayloadRefused where an answer is malformed.
        """
        sums = {name: np.zeros(self.before[name].shape) for name in self._names}
        step = self.rate / len(self.answers)
        for one in order:
            answer, own = self._answer(one), () if known else self._along_known[one]
            for name in self._names:
                sums[name] += answer[name]
                for length, direction in zip(own, self._known, strict=False):
                    sums[name] -= length * direction[name]
            yield {**self.before, **{name: (self.before[name] - step * sums[name]).astype("<f4") for name in sums}}

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.layout.of("gradient"))

    def _answer(self, number: int) -> Floats:
        answer = self.answers[number]
        tensors = decode_tensors(self.layout, answer.data, self.codec, answer.seed)
        return {name: tensors[name].astype(np.float64) * answer.scale for name in self._names}

    @cached_property
    def _known(self) -> list[Floats]:
        """Orthogonal directions of length 1 that span the latest updates."""
        found: list[Floats] = []
        after = self.before
        for before in self.earlier[:KNOWN]:
            update: Floats = {name: np.subtract(before[name], after[name], dtype=np.float64) for name in self._names}
            length, after = math.sqrt(_product(update, update)), before
            for known in found:
                along = _product(update, known)
                update = {name: update[name] - along * known[name] for name in self._names}
            own = math.sqrt(_product(update, update))
            if own > PARALLEL * length:
                found.append({name: update[name] / own for name in self._names})
        return found

    @cached_property
    def _along_known(self) -> list[tuple[float, ...]]:
        """By answer: its length along each known direction."""
        return [tuple(_product(self._answer(one), known) for known in self._known) for one in range(len(self.answers))]


def _product(one: Floats, other: Floats) -> float:
    """Returns the inner product, its sum rounded once."""
    return math.fsum(value for name in one for value in (one[name] * other[name]).ravel().tolist())
