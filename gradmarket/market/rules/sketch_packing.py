"""Builds and encodes sketches of payloads, as gradient.projection defines them."""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from gradmarket.market.gradient.codecs import Codec
from gradmarket.market.gradient.payload import read_tensors
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.gradient.projection import Numbers, Sketch, sketch_tensors
from gradmarket.market.terms import Hash
from gradmarket.market.wire import SKETCH_WIDTH
from graphdoc.encoding import Bytes

STORED: Final = np.dtype("<f4")


def of_payload(layout: Layout, data: Bytes, codec: Codec, task_seed: bytes, seed: Hash) -> dict[str, Numbers]:
    """Returns the sketch of a payload's decoded tensors, computed one at a time.

    `task_seed` is for the codec, `seed` is the wave's. Raises PayloadRefused as `payload.read_shard` does.
    """
    tensors = read_tensors(layout, data, codec, task_seed)
    return {name: sketch_tensors({name: tensor}, seed)[name] for name, tensor in tensors}


def pack_sketch(made: Sketch, names: Iterable[str]) -> bytes:
    """Returns float32[tensors, 64] as little-endian bytes, in the order of `names`."""
    return b"".join(made[name].astype(STORED, copy=False).tobytes() for name in names)


def unpack_sketch(data: bytes, names: Iterable[str]) -> dict[str, Numbers]:
    """Reverses `pack_sketch` for a sketch with these names. Raises ValueError on another length."""
    rows = np.frombuffer(data, STORED).reshape(-1, SKETCH_WIDTH).astype(np.float32)
    return dict(zip(names, rows, strict=True))


def encode_sketch(made: Sketch) -> dict[str, bytes]:
    """Returns the sketch in its wire format: each tensor's bytes by name."""
    return {name: pack_sketch(made, [name]) for name in made}


def decode_sketch(columns: Mapping[str, bytes]) -> dict[str, Numbers]:
    """Returns the sketch from its wire format, in which each tensor's numbers have the right length."""
    return unpack_sketch(b"".join(columns.values()), columns)
