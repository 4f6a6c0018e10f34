"""The payload of an answer: named float32 tensors in one canonical order, encoded as bytes.

The order is the loss, then the gradient of every trainable parameter in document order, then the new value of every
float buffer. As one flat vector in C order they are cut into shards of SHARD_ELEMENTS. The codec packs each shard, and
the packed shards are concatenated without separators. Where the codec is for gradients only, a shard is cut where they
begin and end, and loss and buffers are packed as fp32. Where the layout has leaves (features.windows), their digests
follow; where it is weighed, the weight of the task's rows comes last, whatever the codec. The blake3 of these bytes is
the payload's root, which is voted on, signed and paid for, and the digest of the blob that the payload is stored as.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
from blake3 import blake3

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Tensors, Vector
from gradmarket.market.gradient.codecs import Codec
from gradmarket.market.gradient.payload_layout import (
    LEAF_BYTES,
    WEIGHT_BYTES,
    Layout,
    LayoutEntry,
    list_packings,
    payload_bytes,
)
from gradmarket.market.terms import Hash
from graphdoc.document.graph import WEIGHT
from graphdoc.encoding import Bytes

WEIGHT_TYPE: Final = np.dtype("<f4")


def check_payload_tensors(layout: Layout, tensors: Tensors) -> None:
    """Raises PayloadRefused where names, a dtype or a shape differ from the layout's.

    A weight beyond the layout's tensors is allowed: jobs in which answers weigh alike leave it out.
    """
    names = {entry.name for entry in layout.entries}
    if differing := names ^ (tensors.keys() - {WEIGHT}):
        raise PayloadRefused(f"names differ from the layout's: {sorted(differing)[:5]}")
    if layout.weighed and WEIGHT not in tensors:
        raise PayloadRefused("the weight of its rows is missing")
    for entry in layout.entries:
        tensor = tensors[entry.name]
        if tensor.dtype != np.float32 or tensor.shape != entry.shape:
            raise PayloadRefused(f"{entry.name} is {tensor.dtype}{tensor.shape}, not float32{entry.shape}")


def unflatten_vector(layout: Layout, vector: Vector) -> dict[str, Vector]:
    """Returns the named tensors as views of a flat float32 vector. Raises PayloadRefused on another size."""
    if vector.shape != (layout.size,):
        raise PayloadRefused(f"the vector has shape {vector.shape}, not ({layout.size},)")
    tensors, start = {}, 0
    for entry in layout.entries:
        tensors[entry.name] = vector[start : start + entry.size].reshape(entry.shape)
        start += entry.size
    return tensors


def encode_payload(
    layout: Layout, tensors: Tensors, codec: Codec, seed: bytes, leaves: Sequence[Hash] = ()
) -> memoryview:
    """Returns the canonical bytes of an answer; `seed` is the task's.

    They lie in numpy's memory, whose large pages are allocated in a quarter of the time of a `bytes` object's.

    Raises PayloadRefused as `check_payload_tensors` does, and where the number of leaves differs from the layout's.
    """
    check_payload_tensors(layout, tensors)
    if len(leaves) != layout.leaves:
        raise PayloadRefused(f"it has {len(leaves)} leaves, not {layout.leaves}")
    packed = np.empty(payload_bytes(layout, codec), np.uint8).data
    for index, shard in enumerate(_cut_shards(layout, tensors)):
        packed[shard_place(layout, index, codec)] = pack_shard(layout, shard, index, codec, seed)
    weight = np.asarray(tensors[WEIGHT], WEIGHT_TYPE).tobytes() if layout.weighed else b""
    packed[layout.places(codec)[-1] :] = b"".join(leaves) + weight
    return packed.toreadonly()


def weight_of(layout: Layout, data: Bytes) -> float:
    """Returns the weight of an answer's rows, any float32, from its payload of the right length; else 1."""
    if not layout.weighed:
        return 1.0
    return float(np.frombuffer(memoryview(data).cast("B")[-WEIGHT_BYTES:], WEIGHT_TYPE)[0])


def leaves_of(layout: Layout, data: Bytes, codec: Codec) -> list[Hash]:
    """Returns the leaves of a payload of the right length."""
    end = layout.places(codec)[-1]
    starts = (end + LEAF_BYTES * number for number in range(layout.leaves))
    return [Hash(bytes(data[start : start + LEAF_BYTES])) for start in starts]


def pack_shard(layout: Layout, shard: Vector, index: int, codec: Codec, seed: bytes) -> bytes:
    """Returns the bytes of shard `index`, flat float32."""
    own = _shard_seed(seed, index)
    return b"".join(used.pack(shard[part], own) for part, used in list_packings(layout, index, codec))


def _cut_shards(layout: Layout, tensors: Tensors) -> Iterator[Vector]:
    """Yields the shards in one reused buffer: a new large vector would cost more than packing it."""
    shard, filled = np.empty(layout.shards[0].stop, np.float32), 0
    for entry in layout.entries:
        rest = tensors[entry.name].reshape(-1)
        while rest.size:
            piece, rest = np.split(rest, [shard.size - filled])
            shard[filled : filled + piece.size] = piece
            filled = (filled + piece.size) % shard.size
            if filled == 0:
                yield shard
    if filled:
        yield shard[:filled]


def read_shard(layout: Layout, data: Bytes, index: int, codec: Codec, seed: bytes) -> Vector:
    """Returns shard `index` of a payload as flat float32, maybe a read-only view of `data`.

    It reads no other shard. Raises PayloadRefused where the payload has not the layout's length or the codec refuses
    the shard.
    """
    view = memoryview(data).cast("B")
    if len(view) != payload_bytes(layout, codec):
        raise PayloadRefused(f"it has {len(view)} bytes, not {payload_bytes(layout, codec)}")
    return unpack_shard(layout, view[shard_place(layout, index, codec)], index, codec, seed)


def shard_place(layout: Layout, index: int, codec: Codec) -> slice:
    """Returns the place of the bytes of shard `index` in a payload."""
    start, stop = layout.places(codec)[index : index + 2]
    return slice(start, stop)


def unpack_shard(layout: Layout, packed: memoryview, index: int, codec: Codec, seed: bytes) -> Vector:
    """Returns shard `index` from its own bytes alone. Raises PayloadRefused where the codec refuses the shard."""
    parts = list_packings(layout, index, codec)
    lengths = [used.packed_bytes(part.stop - part.start) for part, used in parts]
    places = pairwise(accumulate(lengths, initial=0))
    if len(packed) != sum(lengths):
        raise PayloadRefused(f"shard {index} has {sum(lengths)} bytes, not {len(packed)}")
    vectors = [
        used.unpack(packed[start:stop], part.stop - part.start, _shard_seed(seed, index))
        for (part, used), (start, stop) in zip(parts, places, strict=True)
    ]
    return vectors[0] if len(vectors) == 1 else np.concatenate(vectors)


def decode_shards(layout: Layout, data: Bytes, codec: Codec, seed: bytes) -> Iterator[tuple[int, Vector]]:
    """Yields every shard with its index, so memory is one shard's. Raises PayloadRefused as `read_shard` does."""
    return ((index, read_shard(layout, data, index, codec, seed)) for index in range(len(layout.shards)))


def decode_tensors(layout: Layout, data: Bytes, codec: Codec, seed: bytes) -> dict[str, Vector]:
    """Returns the named tensors of a payload. Raises PayloadRefused as `read_shard` does."""
    shards = [shard for _, shard in decode_shards(layout, data, codec, seed)]
    return unflatten_vector(layout, np.concatenate(shards))


def read_tensors(layout: Layout, data: Bytes, codec: Codec, seed: bytes) -> Iterator[tuple[str, Vector]]:
    """Yields each tensor with its name, in the layout's order, so memory is a shard's and a tensor's.

    Raises PayloadRefused as `read_shard` does.
    """
    shards = (shard for _, shard in decode_shards(layout, data, codec, seed))
    for entry, values in whole_tensors(layout, shards):
        yield entry.name, values.reshape(entry.shape)


def whole_tensors(layout: Layout, shards: Iterator[Vector]) -> Iterator[tuple[LayoutEntry, Vector]]:
    """Yields every tensor, flat and in memory of its own, from all shards in order."""
    rest = np.empty(0, np.float32)
    for entry in layout.entries:
        tensor, done = np.empty(entry.size, np.float32), 0
        while done < entry.size:
            rest = rest if rest.size else next(shards)
            piece, rest = np.split(rest, [min(rest.size, entry.size - done)])
            tensor[done : done + piece.size] = piece
            done += piece.size
        yield entry, tensor


def _shard_seed(seed: bytes, index: int) -> bytes:
    return blake3(seed + index.to_bytes(8, "little"), derive_key_context="gradmarket.payload.shard").digest()
