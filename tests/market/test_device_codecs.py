"""Payloads made on a device, whose twin here is the processor: the bytes are those of the codecs' compiled loops."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gradmarket.market.gradient import codecs
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload import encode_payload
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry, payload_bytes
from gradmarket.runner.device_codecs import PACKERS, pack_answer
from graphdoc import plugins
from graphdoc.document.graph import WEIGHT
from tests.kit.shards import shorten_shards
from tests.market.gradient_cases import LOSS, layouts, tensors_of

Bits = NDArray[np.uint32]
SEED = bytes(32)
NAMES = plugins.list_plugin_names(codecs.__name__)
SIZES = st.sampled_from([0, 1, 63, 64, 65, 200, 4096, 4097, 4160, 9000])
ODD = np.array(
    [0, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001, 0x3F800000, 0x007FFFFF], np.uint32
)
SIGN = np.uint32(1 << 31)

short_shards = shorten_shards(128)


def pack_there(name: str, bits: Bits) -> bytes:
    return PACKERS[name](torch.from_numpy(bits.view(np.int32)).view(1, -1)).numpy().tobytes()


def pack_here(name: str, bits: Bits) -> bytes:
    return load_codec(name).pack(bits.view(np.float32), SEED)


def draw_bits(seed: int, size: int, kind: str) -> Bits:
    """Returns float32 bits: any, normal values of any scale, few values with ties and zeros, or near a denormal."""
    draw = np.random.default_rng(seed)
    values = draw.standard_normal(size)
    if kind == "any":
        return draw.integers(0, 2**32, size, np.uint32)
    if kind == "scaled":
        scales = np.repeat(2.0 ** draw.uniform(-150, 127, -(-size // 64)), 64)[:size]
        return np.float32(values * scales).view(np.uint32)
    if kind == "ties":
        return np.float32(np.round(values * 2) * 2.0 ** draw.integers(-140, 100)).view(np.uint32)
    bits = np.float32(values * 2.0**-126).view(np.uint32)
    places = draw.integers(0, max(size, 1), size // 100)
    bits[places] = draw.choice(ODD, places.size) | (SIGN * draw.integers(0, 2, places.size, np.uint32))
    return bits


def test_every_codec_packs_on_a_card() -> None:
    assert set(PACKERS) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@given(seed=st.integers(0, 2**32), size=SIZES, kind=st.sampled_from(["any", "scaled", "ties", "tiny"]))
def test_shards_have_the_bytes_of_the_host_s(name: str, seed: int, size: int, kind: str) -> None:
    bits = draw_bits(seed, size, kind)
    assert pack_there(name, bits) == pack_here(name, bits)


@pytest.mark.parametrize("name", NAMES)
@given(bits=st.lists(st.sampled_from([int(one) for one in (*ODD, *(ODD | SIGN))]), min_size=1, max_size=130))
def test_odd_values_beside_each_other_have_the_bytes_of_the_host_s(name: str, bits: list[int]) -> None:
    shard = np.array(bits, np.uint32)
    assert pack_there(name, shard) == pack_here(name, shard)


def pack_whole(layout: Layout, arrays: dict[str, NDArray[np.float32]], name: str) -> bytes:
    place = torch.full((payload_bytes(layout, load_codec(name)),), 7, dtype=torch.uint8)
    pack_answer(layout, {key: torch.tensor(array) for key, array in arrays.items()}, name, place)
    return place.numpy().tobytes()


@pytest.mark.parametrize("name", NAMES)
@given(layout=layouts(), seed=st.integers(0, 2**32))
def test_payloads_have_the_bytes_of_the_host_s(name: str, layout: Layout, seed: int) -> None:
    arrays = tensors_of(layout, seed)
    assert pack_whole(layout, arrays, name) == bytes(encode_payload(layout, arrays, load_codec(name), SEED))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [128 * 12 - 1, 128 * 12, 1000])
def test_groups_of_shards_and_weights_have_the_bytes_of_the_host_s(name: str, size: int) -> None:
    entries = (LOSS, LayoutEntry("a", (size,), "gradient"), LayoutEntry("b", (129,), "buffer"))
    layout = Layout(entries, weighed=True)
    arrays = tensors_of(layout, size) | {WEIGHT: np.array(12.5, np.float32)}
    assert pack_whole(layout, arrays, name) == bytes(encode_payload(layout, arrays, load_codec(name), SEED))
