"""The update that a round publishes: the change by its merge, in the few bytes of a codec for gradients.

The requester keeps the exact parameters p; workers hold the published ones w, and start from these:

    p[t + 1] = the optimizer's step from p[t], with gradients taken at w[t]
    c[t]     = encode(p[t + 1] - w[t])
    w[t + 1] = w[t] + decode(c[t])

This is error feedback: p - w is the part that earlier codes omitted, and the next code includes it again (Seide et al.
2014, "1-bit stochastic gradient descent"; Karimireddy et al. 2019, "Error feedback fixes SignSGD"). So p takes the
steps that the optimizer would take alone, and w follows it. p lies in the optimizer's memory, as `exact/<parameter>`,
and is stored and replayed with it.

The bytes are the digest of w[t] as a file, then a payload of the layout: the round's loss, the codes, and the new float
buffers as float32. Every addition is one float32 operation, so the bits do not depend on the machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Arrays, Tensors, Vector
from gradmarket.market.gradient.codecs import Codec
from gradmarket.market.gradient.payload import pack_shard, read_shard, shard_place, unpack_shard
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.gradient.shards import iterate_shard_pieces
from gradmarket.market.terms import Hash
from graphdoc.encoding import Bytes

EXACT: Final = "exact/"
HEAD: Final = 32
"""Bytes before the payload: the digest of the parameters that the update changes."""


def update_bytes(layout: Layout, codec: Codec) -> int:
    """Returns the exact length of every update of this layout."""
    return HEAD + layout.places(codec)[-1]


def count_worthwhile_updates(layout: Layout, codec: Codec) -> int:
    """Returns how many updates in a row take fewer bytes than the float32 values that they change."""
    return 4 * layout.size // update_bytes(layout, codec)


def select_exact_parameters(memory: Arrays) -> dict[str, Vector]:
    """Returns the exact parameters that an optimizer's memory has, by name."""
    return {key.removeprefix(EXACT): array for key, array in memory.items() if key.startswith(EXACT)}


@dataclass(frozen=True)
class UpdateDraft:
    """The target of a round's update: `data` has `update_bytes`; `start` is the digest of the parameters before."""

    codec: Codec
    data: memoryview
    start: Hash

    def begin(self) -> None:
        self.data[:HEAD] = self.start

    def publish(
        self, layout: Layout, index: int, before: Arrays, after: Arrays, parameters: Tensors, loss: float
    ) -> None:
        """Writes shard `index` of the update, and the published parameters after it; `after` has the new buffers."""
        shard = np.empty(len(range(*layout.shards[index].indices(layout.size))), np.float32)
        for entry, place, part in iterate_shard_pieces(layout, index, shard):
            if entry.kind == "gradient":
                with np.errstate(invalid="ignore", over="ignore"):
                    np.subtract(
                        _flatten_array(parameters, entry.name)[place],
                        _flatten_array(before, entry.name)[place],
                        out=part,
                    )
            else:
                part[:] = loss if entry.kind == "loss" else _flatten_array(after, entry.name)[place]
        packed = pack_shard(layout, shard, index, self.codec, self.start)
        at = shard_place(layout, index, self.codec)
        self.data[HEAD + at.start : HEAD + at.stop] = packed
        _apply_decoded_shard(
            layout, index, before, after, unpack_shard(layout, memoryview(packed), index, self.codec, self.start)
        )


def apply_published_update(
    layout: Layout, codec: Codec, tensors: Arrays, start: Hash, update: Bytes, counters: Sequence[str] = ()
) -> None:
    """Changes published parameters in place to those after an update; memory is a shard's.

    start: their digest. counters: as in `round_update.advance_model`. Raises PayloadRefused where the update is
    malformed or of other parameters, or the tensors are not the layout's; after that they may be half changed.
    """
    view = memoryview(update).cast("B")
    if bytes(view[:HEAD]) != start:
        raise PayloadRefused("it is the update of other parameters")
    layout = replace(layout, leaves=0, weighed=False)
    for entry in (*layout.of("gradient"), *layout.of("buffer")):
        tensor = tensors.get(entry.name)
        if tensor is None or tensor.shape != entry.shape or tensor.dtype != np.float32:
            raise PayloadRefused(f"the parameters have no {entry.name} of float32{entry.shape}")
    for index in range(len(layout.shards)):
        _apply_decoded_shard(layout, index, tensors, tensors, read_shard(layout, view[HEAD:], index, codec, start))
    for name in counters:
        counter = tensors.get(name)
        if counter is None or not np.issubdtype(counter.dtype, np.integer):
            raise PayloadRefused(f"the parameters have no integer {name}")
        counter += counter.dtype.type(1)


def _apply_decoded_shard(layout: Layout, index: int, before: Arrays, after: Arrays, shard: Vector) -> None:
    """Adds a decoded shard to the parameters, and writes its buffers. A NaN is written as numpy's, whatever its bits:
    the bits of a NaN sum differ between machines."""
    for entry, place, part in iterate_shard_pieces(layout, index, shard):
        if entry.kind == "loss":
            continue
        target = _flatten_array(after, entry.name)[place]
        if entry.kind == "buffer":
            target[:] = part
            continue
        with np.errstate(invalid="ignore", over="ignore"):
            np.add(_flatten_array(before, entry.name)[place], part, out=target)
        np.copyto(target, np.float32(np.nan), where=np.isnan(target))


def _flatten_array(arrays: Arrays, name: str) -> Vector:
    """Returns a view of one array."""
    return arrays[name].reshape(-1)
