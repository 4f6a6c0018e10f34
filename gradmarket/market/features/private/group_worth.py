"""Measures the worth of answers by steps along each of them, from where groups of the others lead (`shapley`).

An answer's value after a group is half of the loss a step of it back less that a step of it forward. To the second
order this is the answer's gain without its own curvature: with it, an answer that is half as long, or in two halves
with noise of their own, would be worth more. Answers count at most as long as the median, and a shorter one in
proportion to its length, so that neither lengthening beyond that nor shortening pays.

Each answer counts as the lesser of two values: of the whole answer, and of its part that was not known before. The
known part lies along the model and its latest updates, which any reader of the models can send back without a row of
its own; of such an answer nothing is left. The whole answer's value counts too, or an answer might undo those updates.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.features.private.shapley import Worths, choose_lesser_worths, estimate_values, slope
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.codecs import Codec
from gradmarket.market.gradient.payload import decode_tensors
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.gradient.round_merge import MergedAnswer

KNOWN_UPDATES: Final = (2, 64)
"""The fewest and the most latest updates that are taken out of an answer."""
KNOWN_BYTES: Final = 2**28
"""Bytes of these updates together as float64, where that allows more than the fewest; also the limit for kept steps."""
DIRECTIONS: Final = 32
"""Elements of a model for each update that is taken out, where that allows more than the fewest."""
PARALLEL: Final = 1e-6
"""An update that differs from those after it by less of its length has no direction of its own."""
Flat = NDArray[np.float64]


def known_updates(layout: Layout) -> int:
    """Returns how many latest updates of a model are taken out of answers: of a small one a part of its directions
    alone, or nothing would be left of honest answers."""
    fewest, most = KNOWN_UPDATES
    elements = sum(entry.size for entry in layout.of("gradient"))
    return max(fewest, min(most, KNOWN_BYTES // (8 * elements), elements // DIRECTIONS))


@dataclass(frozen=True)
class GroupSteps:
    """`before` are the round's parameters, `answers` all of the round, `rate` the factor of the merged mean.

    A group's step is its part of the whole round's: for every group, the sum is divided by the number of all answers.

    earlier: parameters of rounds before, the latest first; the difference of each two is an update.
    """

    layout: Layout
    codec: Codec
    before: Arrays
    answers: Sequence[MergedAnswer]
    rate: float
    earlier: Sequence[Arrays] = ()

    def worths(self, drawn: Sequence[Sequence[int]], loss: Callable[[Arrays], float]) -> Worths:
        """Returns the worths of the answers by these pairs of orders; `loss` maps parameters to their loss.

        Memory is an answer's, a sum and known_updates() in float64, and a copy of the parameters. Raises PayloadRefused
        where an answer is malformed.
        """
        before = loss(self.before)

        def added(order: Sequence[int], known: bool) -> list[float]:
            found, start = [], self._flat(self.before)
            for one in order:
                step = self._step(one, known)
                forward, back = (loss(self._shaped(place)) for place in (start - step, start + step))
                found.append(slope(before, forward, back) * min(1.0, self._relative[one]))
                start -= step
            return found

        whole = estimate_values(drawn, partial(added, known=True))
        return (
            choose_lesser_worths(whole, estimate_values(drawn, partial(added, known=False))) if self.earlier else whole
        )

    def _step(self, one: int, known: bool) -> Flat:
        """Returns an answer's step, no longer than the median; unless `known`, without its part that was known
        before."""
        if (one, known) in self._kept:
            return self._kept[one, known]
        answer = self._decode_answer(one)
        if not known:
            for _ in range(2):  # once more, against rounding (Parlett 1980: twice is enough)
                for direction in self._known:
                    answer -= np.vdot(answer, direction) * direction
        shortened = 1.0 / max(1.0, self._relative[one])
        step: Flat = answer * (self.rate / len(self.answers) * self.answers[one].scale * shortened)
        if 2 * len(self.answers) * step.nbytes <= KNOWN_BYTES:
            self._kept[one, known] = step
        return step

    @cached_property
    def _kept(self) -> dict[tuple[int, bool], Flat]:
        """Computed steps, where all of them fit."""
        return {}

    @cached_property
    def _relative(self) -> tuple[float, ...]:
        """By answer: its length over the round's median length."""
        lengths = [float(np.linalg.norm(self._decode_answer(one))) for one in range(len(self.answers))]
        usual = median(lengths)
        return tuple(length / usual if usual else 0.0 for length in lengths)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.layout.of("gradient"))

    def _decode_answer(self, number: int) -> Flat:
        answer = self.answers[number]
        return self._flat(decode_tensors(self.layout, answer.data, self.codec, answer.seed))

    def _flat(self, tensors: Mapping[str, NDArray[np.float32]]) -> Flat:
        return np.concatenate([tensors[name].ravel().astype(np.float64) for name in self._names])

    def _shaped(self, flat: Flat) -> Arrays:
        """Returns the parameters with these values; buffers stay as they were."""
        after, start = dict(self.before), 0
        for name in self._names:
            shape = self.before[name].shape
            after[name] = flat[start : start + math.prod(shape)].reshape(shape).astype("<f4")
            start += math.prod(shape)
        return after

    @cached_property
    def _known(self) -> list[Flat]:
        """Orthogonal directions of length 1 that span the latest updates and the parameters themselves."""
        found: list[Flat] = []
        for update in self._updates():
            length = float(np.linalg.norm(update))
            for _ in range(2):
                for known in found:
                    update -= np.vdot(update, known) * known
            own = float(np.linalg.norm(update))
            if own > PARALLEL * length:
                found.append(update / own)
        return found

    def _updates(self) -> Iterable[Flat]:
        after = self._flat(self.before)
        for earlier in self.earlier[: known_updates(self.layout)]:
            before = self._flat(earlier)
            yield before - after
            after = before
        yield self._flat(self.before)
