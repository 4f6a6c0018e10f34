"""The codecs' own arithmetic; test_plugins has the contract of all codecs."""

import struct

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.gradient.codecs import bf16, fp32
from tests.market.gradient_cases import EVERY_FLOAT


def nearest_bf16(value: float) -> int:
    """By definition: the nearer neighbour, of equally near ones the even; numbers beyond the last are infinite."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    low, rest = bits >> 16, bits & 0xFFFF
    return low + (rest > 0x8000 or (rest == 0x8000 and low & 1 == 1))


@given(st.lists(EVERY_FLOAT.filter(lambda value: value == value), min_size=1, max_size=50))
def test_bf16_rounds_to_nearest_even(values: list[float]) -> None:
    packed = np.frombuffer(bf16.pack(np.array(values, np.float32), b""), "<u2")
    assert packed.tolist() == [nearest_bf16(value) for value in values]


def test_bf16_is_torchs_on_random_bits() -> None:
    drawn = np.random.default_rng(5).integers(0, 2**32, 200_000, np.uint32).view(np.float32)
    drawn = drawn[~np.isnan(drawn)]
    expected = torch.from_numpy(drawn).to(torch.bfloat16).to(torch.float32).numpy()
    data = memoryview(bf16.pack(drawn, b""))
    assert bf16.unpack(data, drawn.size, b"").tobytes() == expected.tobytes()


def test_bf16_keeps_a_nan_a_nan() -> None:
    """Rounding alone would turn the NaN with only its last bit set into infinity, and the one with all bits into 0."""
    nans = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001, 0x7FC00000], np.uint32).view(np.float32)
    found = bf16.unpack(memoryview(bf16.pack(nans, b"")), nans.size, b"")
    assert np.isnan(found).all()
    assert (np.signbit(found) == np.signbit(nans)).all()


def test_fp32_keeps_a_nans_bits() -> None:
    nans = np.array([0x7F800001, 0xFFFFFFFF, 0x7FC00123], np.uint32).view(np.float32)
    assert fp32.unpack(memoryview(fp32.pack(nans, b"")), 3, b"").tobytes() == nans.tobytes()
