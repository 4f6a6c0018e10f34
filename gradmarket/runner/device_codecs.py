"""Payloads made where an answer's tensors are, on a card: the bytes of gradient.payload, by the codecs' own integers.

Nothing but packed bytes leaves the card. Each function here has the rows of equal shards as int32[shards, elements],
which are the bits of float32, and returns uint8[shards, bytes]: each packed by the codec of its name. The bits do
not depend on the device: all operations are of integers, and none has a float in it but the length of an integer.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from gradmarket.market.gradient.codecs import Codec, _loops, fp32, load_codec
from gradmarket.market.gradient.payload_layout import SHARD_ELEMENTS, Layout, list_packings
from graphdoc.document.graph import WEIGHT

AT_ONCE: Final = 32
"""Shards that are packed at once: 128 MiB, and PACKING_BYTES an element for intermediate results."""
PACKING_BYTES: Final = 44
"""A card's, of int8, which takes the most: 1,414 MB for 32 shards on an H100."""
BLOCK, TOP_BLOCK, TAKEN = _loops.BLOCK, _loops.TOP_BLOCK, _loops.TAKEN
MAGNITUDE, INFINITE = int(_loops.MAGNITUDE), int(_loops.INFINITE)
FURTHEST, SPARE, ROUND, INVALID = (
    int(number) for number in (_loops.FURTHEST, _loops.SPARE, _loops.ROUND, _loops.INVALID)
)
NOT_FINITE, GREATEST = int(_loops.NOT_FINITE), _loops.GREATEST
GATHER: Final = 0x0102040810204080
"""The sum of 2^(56 - 7i): times a sum of b_i 2^(8i), it has b_i at 56 + i."""
QUIET: Final = 0x00400000
"""Makes a NaN a quiet one."""


def pack_answer(layout: Layout, tensors: Mapping[str, Tensor], name: str, place: Tensor) -> None:
    """Writes the canonical bytes of an answer without leaves to `place`, uint8[payload_bytes], of any device."""
    codec, packed = load_codec(name), []
    flat = [tensors[entry.name].reshape(-1) for entry in layout.entries]
    for first, last in _group_shards(layout, codec):
        # the elements from `start` to before `stop` of the flat vector
        start = layout.shards[first].start
        stop = layout.shards[last - 1].stop
        pieces = [
            tensor[max(0, start - begin) : max(0, stop - begin)]
            for tensor, begin in zip(flat, layout.starts, strict=True)
            if begin < stop and begin + tensor.numel() > start
        ]
        bits = torch.cat(pieces).view(torch.int32)
        rows = bits.view(last - first, -1)
        parts = [
            (pack_fp32 if used is fp32 else PACKERS[name])(rows[:, part])
            for part, used in list_packings(layout, first, codec)
        ]
        packed.append(torch.cat(parts, 1).view(-1))
    if layout.weighed:
        packed.append(tensors[WEIGHT].reshape(1).view(torch.uint8))
    place.copy_(torch.cat(packed))  # once: a copy to the host waits for all before it


def estimate_packing_bytes(layout: Layout) -> int:
    """Returns the most bytes that `pack_answer` takes beside the answer: twice the payload in float32."""
    return PACKING_BYTES * min(layout.size, AT_ONCE * SHARD_ELEMENTS) + 2 * 4 * layout.size


def _group_shards(layout: Layout, codec: Codec) -> Iterator[tuple[int, int]]:
    """Yields the first shard and the one after the last of each group, whose shards are whole and packed alike."""
    shards = layout.shards
    kinds = [
        (shard.stop - shard.start, *(used for _, used in list_packings(layout, index, codec)))
        for index, shard in enumerate(shards)
    ]
    alone = {index for index, kind in enumerate(kinds) if len(kind) > 2}
    first = 0
    while first < len(shards):
        last = first + 1
        while last < min(len(shards), first + AT_ONCE) and kinds[last] == kinds[first] and first not in alone:
            last += 1
        yield first, last
        first = last


def pack_fp32(bits: Tensor) -> Tensor:
    return bits.contiguous().view(torch.uint8)


def pack_bf16(bits: Tensor) -> Tensor:
    rounded = bits + ((bits >> 16 & 1) + 0x7FFF)
    halves = torch.where((bits & MAGNITUDE) > INFINITE, bits | QUIET, rounded) >> 16
    return _split_halves(halves)


def pack_int8(bits: Tensor) -> Tensor:
    exponents, codes = _round_integers(bits, 8)
    return torch.cat([exponents, codes.to(torch.int8).view(torch.uint8).flatten(1)[:, : bits.shape[1]]], 1)


def pack_int4(bits: Tensor) -> Tensor:
    exponents, codes = _round_integers(bits, 4)
    return torch.cat([exponents, _join_nibbles(codes)], 1)


def pack_fp4(bits: Tensor) -> Tensor:
    blocks = _cut_blocks(bits, BLOCK)
    magnitudes, top = blocks & MAGNITUDE, (blocks & MAGNITUDE).amax(-1)
    valid = top < INFINITE
    exponent = ((torch.where(valid, top, 0) + ROUND) >> 23).clamp(max=254)
    least = (exponent - 7).clamp(min=1) << 23
    finite = torch.where(valid[..., None], magnitudes, 0)
    codes = (((finite + ROUND) >> 23) - exponent[..., None] + 7).clamp(1, 7) * (finite >= least[..., None])
    signed = codes + 8 * ((blocks < 0) & (codes > 0))
    return torch.cat([torch.where(valid, exponent, INVALID).to(torch.uint8), _join_nibbles(signed)], 1)


def pack_two_bit(bits: Tensor) -> Tensor:
    return torch.cat(_classify_blocks(_cut_blocks(bits, BLOCK), _count_elements(bits, BLOCK)), 1)


def pack_topk(bits: Tensor) -> Tensor:
    blocks = _cut_blocks(bits, TOP_BLOCK)
    counts = _count_elements(bits, TOP_BLOCK)
    # stable: the filling of the last block comes after its zeros
    order = (blocks & MAGNITUDE).sort(dim=-1, descending=True, stable=True).indices[..., :TAKEN]
    places = order.sort(dim=-1).values
    words = (places[..., 0::2] | places[..., 1::2] << 12).flatten(1)
    packed = torch.stack([words & 255, words >> 8 & 255, words >> 16], -1).to(torch.uint8)
    return torch.cat([*_classify_blocks(blocks.gather(-1, places), counts.clamp(max=TAKEN)), packed.flatten(1)], 1)


PACKERS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "fp32": pack_fp32,
    "bf16": pack_bf16,
    "int8": pack_int8,
    "int4": pack_int4,
    "fp4": pack_fp4,
    "two_bit": pack_two_bit,
    "topk": pack_topk,
}
"""By the codec's name: each codec has one."""


def _cut_blocks(bits: Tensor, size: int) -> Tensor:
    """Returns int32[shards, blocks, size], the last block filled with 0."""
    missing = -bits.shape[1] % size
    return (pad(bits, (0, missing)) if missing else bits.contiguous()).view(len(bits), -1, size)


def _count_elements(bits: Tensor, size: int) -> Tensor:
    """Returns the elements of each block of a shard, int32[blocks]."""
    starts = torch.arange(0, bits.shape[1], size, dtype=torch.int32, device=bits.device)
    return (bits.shape[1] - starts).clamp(max=size)


def _find_significands(magnitudes: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the same as _loops.significand, in few passes over the elements: a card's time is that of its memory."""
    exponents = (magnitudes >> 23).clamp_(min=1)
    return exponents, torch.add(magnitudes, exponents - 1, alpha=-(1 << 23))


def _round_integers(bits: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Returns the blocks' exponents, uint8[shards, blocks], and int32 codes[shards, blocks, 64]: _loops does it too."""
    blocks = _cut_blocks(bits, BLOCK)
    magnitudes = blocks & MAGNITUDE
    top = magnitudes.amax(-1)
    exponent = (top >> 23).clamp(min=1)
    own, fraction = _find_significands(magnitudes)
    shift = ((exponent + (25 - width))[..., None] - own).clamp_(max=FURTHEST)
    half = (shift.new_ones(()) << (shift - 1)) - 1
    codes = ((fraction + half + (fraction >> shift & 1)) >> shift).clamp(max=(1 << (width - 1)) - 1)
    codes = torch.where(blocks < 0, -codes, codes)
    codes = torch.where((top < INFINITE)[..., None], codes, 0)
    top_codes = torch.where(top == 0, 0, torch.where(top < INFINITE, exponent, INVALID))
    return top_codes.to(torch.uint8), codes


def _classify_blocks(blocks: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns means, signs and upper class of all blocks of each shard as bytes: _loops.classes does it too.

    blocks: int32[shards, blocks, 64], 0 beyond the elements, of which each has counts[blocks].
    """
    magnitudes = blocks & MAGNITUDE
    top = magnitudes.amax(-1)
    exponent, finite = (top >> 23).clamp(min=1), top < INFINITE
    zeros = (magnitudes == 0).sum(-1, dtype=torch.int32) - (blocks.shape[-1] - counts)
    own, fraction = _find_significands(magnitudes)
    kept = fraction >> ((exponent + SPARE)[..., None] - own).clamp_(max=FURTHEST)
    total, some = kept.sum(-1, dtype=torch.int32), zeros > 0
    left, right = torch.where(some, 4 * (counts - zeros), counts), torch.where(some, 3 * total, total)
    upper = (kept * left[..., None] > right[..., None]) & finite[..., None]
    above, many = (kept * upper).sum(-1, dtype=torch.int32), upper.sum(-1, dtype=torch.int32)
    low = torch.where(some, 0, _round_mean(total - above, (counts - many).clamp(min=1), exponent))
    high = torch.where(many > 0, _round_mean(above, many.clamp(min=1), exponent), low)
    means = torch.where(finite[..., None], torch.stack([low, high], -1), NOT_FINITE)
    return _split_halves(means.flatten(1)), _join_bits((blocks < 0) & finite[..., None]), _join_bits(upper)


def _round_mean(total: Tensor, count: Tensor, exponent: Tensor) -> Tensor:
    """Returns the mean of integers below 2^21 as _loops.bfloat16 has it, int32."""
    value = torch.div(total + torch.div(count, 2, rounding_mode="floor"), count, rounding_mode="floor")
    length = (value.float().view(torch.int32) >> 23) - 126
    rounded = ((value << 9 >> length.clamp(min=0)) + 1) >> 1
    biased = length + (rounded == 256).int() + exponent - 21
    found = ((biased << 7) | (rounded & 127)).clamp(max=GREATEST)
    return torch.where((biased > 0) & (value > 0), found, 0)


def _split_halves(halves: Tensor) -> Tensor:
    """Returns the lower 16 bits of each integer, little-endian: uint8[shards, 2 * integers]."""
    return halves.to(torch.int16).view(torch.uint8)


def _join_bits(flags: Tensor) -> Tensor:
    """Returns 64 flags as 8 bytes, the first as the lowest bit of the first: uint8[shards, 8 * blocks].

    Eight flags are the bytes of one integer; by the product, whose terms share no bit, each comes to its place in the
    highest byte.
    """
    words = flags.reshape(-1).view(torch.uint8).view(torch.int64)
    return (words * GATHER >> 56).to(torch.uint8).view(len(flags), flags[0].numel() // 8)


def _join_nibbles(codes: Tensor) -> Tensor:
    """Returns two codes a byte, the first in the lower half: uint8[shards, bytes]."""
    return (codes[..., 0::2] & 15 | (codes[..., 1::2] & 15) << 4).to(torch.uint8).flatten(1)
