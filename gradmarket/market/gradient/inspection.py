"""Decides whether a well-formed answer can be used.

The job's norm bound applies to all gradients together. Loss and buffers do not count in that norm (a running variance
may be far larger than any gradient); each of their elements must stay within VALUE_BOUND, and so must the weight of its
rows, which is 0 or more. An answer that exceeds either, and that its quorum agreed on, is diverged: it is paid and not
used, and the job pauses with the reason.

A holder's answer is encoded so that its decoded values are within the job's bounds.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from gradmarket.market.errors import Refused
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.codecs import Codec
from gradmarket.market.gradient.norm import clip_gradient
from gradmarket.market.gradient.payload import decode_shards, encode_payload
from gradmarket.market.gradient.payload_layout import Layout, list_sections
from gradmarket.market.gradient.sums import iterate_square_sums
from gradmarket.market.terms import Hash
from graphdoc.encoding import Bytes

VALUE_BOUND: Final = 2.0**40
"""Bound of the absolute value of the loss and of every element of a buffer."""


class Divergence(StrEnum):
    NOT_FINITE = "not_finite"
    NORM_OVER_BOUND = "norm_over_bound"
    VALUE_OVER_BOUND = "value_over_bound"
    NO_WEIGHT = "no_weight"


_WORDS: Final = {
    Divergence.NOT_FINITE: "a number in it is not finite",
    Divergence.NORM_OVER_BOUND: "its gradients are longer than the job's norm_bound",
    Divergence.VALUE_OVER_BOUND: f"its loss or a number of its buffers is larger than {VALUE_BOUND:g}",
    Divergence.NO_WEIGHT: f"the weight of its rows is not from 0 to {VALUE_BOUND:g}",
}


@dataclass(frozen=True)
class Diverged:
    """The answer cannot be used; `norm` is the gradients' and may be infinite or NaN."""

    reason: Divergence
    norm: float

    def __str__(self) -> str:
        return f"{self.reason} (gradient norm {self.norm:g})"

    @property
    def unmeasured(self) -> str:
        """Returns the reason without the norm: a holder's norm reveals facts about its rows, and verdicts are
        public."""
        return _WORDS[self.reason]


@dataclass(frozen=True)
class Usable:
    """The answer can be merged; `norm` is the gradients' L2 norm and `loss` the mean loss over the task's rows."""

    norm: float
    loss: float


class Inspection:
    """Inspects a decoded payload shard by shard, in any order. The result is the same on every machine (see `norm`).

    norm_bound: the largest L2 norm of the gradients.
    """

    def __init__(self, layout: Layout, norm_bound: float) -> None:
        self._layout, self._norm_bound = layout, norm_bound
        self._squares: list[float] = []
        self._largest, self._loss, self._weight = 0.0, math.nan, 1.0

    def inspect_shard(self, index: int, shard: Vector) -> None:
        """Inspects shard `index`; each shard exactly once."""
        for section in list_sections(self._layout, index):
            if section.gradient:
                self._squares.extend(iterate_square_sums(shard[section.part]))
            else:
                self._largest = float(np.maximum(self._largest, float(np.abs(shard[section.part]).max())))
        self._loss = float(shard[0]) if index == 0 else self._loss

    def see_weight(self, weight: float) -> None:
        """Inspects the weight of the answer's rows, where the layout has one."""
        self._weight = weight

    def verdict(self) -> Usable | Diverged:
        """Returns the result after all shards were seen."""
        norm = math.sqrt(math.fsum(self._squares))
        if not (math.isfinite(norm) and math.isfinite(self._largest)):
            return Diverged(Divergence.NOT_FINITE, norm)
        if norm > self._norm_bound:
            return Diverged(Divergence.NORM_OVER_BOUND, norm)
        if self._largest > VALUE_BOUND:
            return Diverged(Divergence.VALUE_OVER_BOUND, norm)
        if not 0.0 <= self._weight <= VALUE_BOUND:
            return Diverged(Divergence.NO_WEIGHT, norm)
        return Usable(norm, self._loss)


def inspect_shards(layout: Layout, shards: Iterable[tuple[int, Vector]], norm_bound: float) -> Usable | Diverged:
    """Returns the result for all shards, as `payload.decode` yields them."""
    inspection = Inspection(layout, norm_bound)
    for index, shard in shards:
        inspection.inspect_shard(index, shard)
    return inspection.verdict()


MARGINS: Final = tuple(4.0**power for power in range(-8, 0))
"""How much shorter each try is than the previous one would allow: a codec that rounds to multiples may round a slightly
shorter gradient to the same ones, so the margin grows until it is wider than the codec's steps."""


def encode_bounded_payload(
    layout: Layout, tensors: Mapping[str, np.ndarray], codec: Codec, seed: bytes, leaves: Sequence[Hash], bound: float
) -> Bytes:
    """Returns the payload, its gradients scaled down together to the L2 norm `bound` where they are longer.

    Raises Refused where a value is not finite, or a loss or buffer is too large to be merged.
    """
    names, limit = {entry.name for entry in layout.of("gradient")}, bound
    for margin in MARGINS:
        shorter = clip_gradient({name: tensor for name, tensor in tensors.items() if name in names}, limit)
        payload = encode_payload(layout, {**tensors, **shorter}, codec, seed, leaves)
        found = inspect_shards(layout, decode_shards(layout, payload, codec, seed), bound)
        if isinstance(found, Usable):
            return payload
        if found.reason is not Divergence.NORM_OVER_BOUND:
            break
        limit *= (1.0 - margin) * bound / found.norm
    raise Refused("its answer is not finite, or has values too large to be merged: lower the job's rate")
