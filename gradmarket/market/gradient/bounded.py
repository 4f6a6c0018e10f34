"""Encodes an answer so that what it decodes to is within the job's bounds: a holder's answer is refused beyond them."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from gradmarket.market.errors import Refused
from gradmarket.market.gradient.codecs import Codec
from gradmarket.market.gradient.inspection import Divergence, Usable, inspect_shards
from gradmarket.market.gradient.norm import clip_gradient
from gradmarket.market.gradient.payload import decode_shards, encode_payload
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.terms import Hash
from graphdoc.encoding import Bytes

MARGINS: Final = tuple(4.0**power for power in range(-8, 0))
"""How much shorter each try is than the one before would allow: a codec that rounds to multiples may round a slightly
shorter gradient to the same ones, so the margin grows until it is wider than the codec's steps."""


def encode_bounded_payload(
    layout: Layout, tensors: Mapping[str, np.ndarray], codec: Codec, seed: bytes, leaves: Sequence[Hash], bound: float
) -> Bytes:
    """Returns the payload, its gradients scaled down together to the L2 norm `bound` where they are longer.

    Raises Refused where a value is not finite, or one that is no gradient is too large to be merged.
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
