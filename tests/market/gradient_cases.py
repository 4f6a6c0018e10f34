"""Layouts, tensors and float32 values for the tests of payload, inspection and merge."""

import struct

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry

LOSS = LayoutEntry("loss", (), "loss")
SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)
SEEDS = st.binary(min_size=32, max_size=32)
EVERY_FLOAT = st.integers(0, 2**32 - 1).map(lambda bits: struct.unpack("<f", struct.pack("<I", bits))[0])
"""Every bit pattern but for NaN payloads: zeros, subnormals, infinities, NaN."""


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    gradients = [
        LayoutEntry(f"layer{index}", shape, "gradient")
        for index, shape in enumerate(draw(st.lists(SHAPES, max_size=4)))
    ]
    buffers = [
        LayoutEntry(f"mean{index}", shape, "buffer") for index, shape in enumerate(draw(st.lists(SHAPES, max_size=3)))
    ]
    return Layout((LOSS, *gradients, *buffers))


def tensors_of(layout: Layout, seed: int, scale: float = 1.0) -> dict[str, NDArray[np.float32]]:
    """Normally distributed values for every entry."""
    generator = np.random.default_rng(seed)
    drawn = {entry.name: scale * generator.standard_normal(entry.shape) for entry in layout.entries}
    return {name: np.asarray(values, np.float32) for name, values in drawn.items()}


def bits(array: NDArray[np.float32]) -> bytes:
    return array.tobytes()
