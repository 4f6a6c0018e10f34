"""The codecs of few bits: they write by their formulas, and refuse codes that no honest worker writes.

The formulas are written out once more here, an element at a time and in exact fractions.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient import codecs

Vector = NDArray[np.float32]
SEED = bytes(32)
SMALL = ("fp4", "int4", "int8", "topk", "two_bit")
LEAST = 2.0**-126
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
SIZES = st.floats(2.0**-60, 2.0**60, width=32)
SHARDS = st.lists(FLOATS, max_size=200).map(lambda values: np.array(values, np.float32))
ODD = (0.0, -0.0, 1.0, -1.5, 2.0**-149, -(2.0**-127), 2.0**-126, 3.4e38, -3.4e38, 1e-20)


def decoded(name: str, shard: Vector) -> Vector:
    codec = codecs.load_codec(name)
    return codec.unpack(memoryview(codec.pack(shard, SEED)), shard.size, SEED)


def blocks(shard: Vector, size: int = 64) -> list[list[Fraction]]:
    return [[Fraction(float(x)) for x in shard[start : start + size]] for start in range(0, shard.size, size)]


def exponent(value: Fraction) -> int:
    """The exponent of a float32: the largest e with 2^e <= |value|, -126 at least."""
    return max(int(np.frexp(float(abs(value)))[1]) - 1, -126)


def multiples(block: list[Fraction], width: int) -> list[Fraction]:
    """To nearest multiples of the block's unit, ties to even, below 2^(width - 1) of them."""
    if not any(block):
        return block
    unit = Fraction(2) ** (exponent(max(map(abs, block))) - width + 2)
    most = 2 ** (width - 1) - 1
    return [max(-most, min(most, round(x / unit))) * unit for x in block]


def powers(block: list[Fraction]) -> list[Fraction]:
    """To the nearest of seven powers of two, ties to the larger, or 0."""
    normal = [x if abs(x) >= LEAST else Fraction(0) for x in block]
    if not any(normal):
        return [Fraction(0)] * len(block)
    nearest = [min(_power(x), 127) if x else -1000 for x in normal]
    least = max(nearest) - 6
    out = []
    for x, power in zip(normal, nearest, strict=True):
        zero = not x or abs(x) < Fraction(2) ** (least - 1)
        out.append(Fraction(0) if zero else (1 if x > 0 else -1) * Fraction(2) ** max(power, least))
    return out


def _power(x: Fraction) -> int:
    low = exponent(x)
    return low + (abs(x) >= Fraction(3, 2) * Fraction(2) ** low)


REFERENCES: dict[str, Callable[[list[Fraction]], list[Fraction]]] = {
    "int4": lambda block: multiples(block, 4),
    "int8": lambda block: multiples(block, 8),
    "fp4": powers,
}


@pytest.mark.parametrize("name", sorted(REFERENCES))
@given(shard=SHARDS)
def test_a_block_is_rounded_by_its_formula(name: str, shard: Vector) -> None:
    expected = [x for block in blocks(shard) for x in REFERENCES[name](block)]
    assert [Fraction(float(x)) for x in decoded(name, shard)] == expected


@given(
    shard=st.lists(st.floats(2.0**-60, 2.0**60, width=32), min_size=1, max_size=150).map(np.array), flips=st.integers(0)
)
def test_two_bits_keep_the_signs_and_the_means_of_two_classes(shard: Any, flips: int) -> None:
    signs = np.array([-1 if flips >> place & 1 else 1 for place in range(shard.size)])
    shard = (shard * signs).astype(np.float32)
    back = decoded("two_bit", shard)
    assert (np.signbit(back) == np.signbit(shard))[back != 0].all()
    for start in range(0, shard.size, 64):
        block = np.abs(shard[start : start + 64].astype(np.float64))
        unit = 2.0 ** (np.floor(np.log2(block.max())) - 20)
        whole = np.floor(block / unit)
        upper = whole * whole.size > whole.sum()
        for part in (upper, ~upper):
            if part.any():
                mean = np.floor(whole[part].mean() + 0.5) * unit
                got = np.abs(back[start : start + 64][part]).astype(np.float64)
                assert len(set(got.tolist())) == 1
                assert abs(got[0] - mean) <= mean / 2**8


@pytest.mark.parametrize("name", [*SMALL, "bf16", "fp32"])
@given(shard=SHARDS, zeros=st.floats(0.0, 1.0), seed=st.integers(0, 2**32))
def test_an_exact_zero_stays_zero(name: str, shard: Vector, zeros: float, seed: int) -> None:
    """Rows that no word of a task has, pruned weights and padding would move the same way in every round."""
    shard = np.where(np.random.default_rng(seed).random(shard.size) < zeros, np.float32(0), shard)
    back = decoded(name, shard)
    assert not back[shard == 0].any()
    assert ((back == 0) | (np.signbit(back) == np.signbit(shard))).all()


@given(st.lists(st.integers(-300, 300), min_size=1, max_size=64), st.integers(0, 63))
def test_a_block_with_a_zero_has_three_values(values: list[int], place: int) -> None:
    """0 below three quarters of the mean magnitude of nonzero values, else the mean of the others."""
    shard = np.array(values, np.float32)
    shard[place % shard.size] = 0
    magnitudes, back = np.abs(shard.astype(np.int64)), decoded("two_bit", shard)
    upper = 4 * magnitudes * np.count_nonzero(magnitudes) > 3 * magnitudes.sum()
    assert not back[~upper].any()
    if upper.any():
        assert len({*np.abs(back[upper]).tolist()}) == 1
        assert np.abs(back[upper])[0] == pytest.approx(magnitudes[upper].mean(), rel=2**-8)


def test_untouched_rows_and_pruned_weights_stand_still_while_others_learn() -> None:
    """300 rounds of SGD on an embedding of which half of the rows have no word and one in ten weights is pruned."""
    chance = np.random.default_rng(5)
    goal, kept = chance.standard_normal((40, 48)), chance.random((40, 48)) > 0.1
    used = kept & (np.arange(40) % 2 == 0)[:, None]
    found = np.zeros((40, 48), np.float32)
    for _ in range(300):
        gradient = ((found - goal) * used * (1 + 0.3 * chance.standard_normal(goal.shape))).astype(np.float32)
        found -= np.float32(0.05) * decoded("two_bit", gradient.reshape(-1)).reshape(goal.shape)
    assert not found[~used].any()
    assert np.linalg.norm((found - goal)[used]) < 0.1 * np.linalg.norm(goal[used])


@given(st.integers(0, 2**32), st.integers(65, 9000))
def test_topk_takes_the_largest_of_each_block(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    shard = (rng.integers(1, 300, size) * rng.choice([-1, 1], size)).astype(np.float32)
    back = decoded("topk", shard)
    for start in range(0, size, 4096):
        block, taken = shard[start : start + 4096], np.flatnonzero(back[start : start + 4096])
        order = np.lexsort((np.arange(block.size), -np.abs(block)))[:64]
        assert sorted(taken) == sorted(order)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_infinite_values_spoil_only_their_block(name: str, bad: float) -> None:
    shard = np.ones(130, np.float32)
    shard[70] = bad
    back = decoded(name, shard)
    assert np.isnan(back).any()
    if name != "topk":
        assert np.isfinite(back[:64]).all()
        assert np.isfinite(back[128:]).all()


@pytest.mark.parametrize("name", SMALL)
def test_the_ends_of_the_range_stay_finite(name: str) -> None:
    shard = np.array(ODD * 7, np.float32)
    back = decoded(name, shard)
    assert np.isfinite(back).all()
    assert (decoded(name, np.zeros(100, np.float32)) == 0).all()
    assert np.isfinite(decoded(name, np.full(64, 3.4028235e38, np.float32))).all()


@pytest.mark.parametrize(
    ("name", "length", "digest"),
    [
        ("fp4", 5181, "53e54819b3bba28f"),
        ("int4", 5181, "06d950cf56ec0b90"),
        ("int8", 10157, "a3bf036297cabe23"),
        ("topk", 348, "2c3018487611eb60"),
        ("two_bit", 3140, "e74e43c88fc012b0"),
    ],
)
def test_the_bytes_are_those_of_every_machine(name: str, length: int, digest: str) -> None:
    shard = np.random.default_rng(7).standard_normal(10_000).astype(np.float32)
    shard[100:200] *= 1e-30
    shard[5000:5100] = 0
    packed = codecs.load_codec(name).pack(shard, SEED)
    assert (len(packed), blake3(packed).hexdigest()[:16]) == (length, digest)


def changed(name: str, place: int, value: int) -> bytes:
    packed = bytearray(codecs.load_codec(name).pack(np.ones(100, np.float32), SEED))
    packed[place] = value
    return bytes(packed)


@pytest.mark.parametrize(
    ("name", "place", "value", "what"),
    [
        ("two_bit", 1, 0xFF, "not two finite magnitudes"),
        ("two_bit", 3, 0x00, "in order"),
        ("two_bit", 8 + 15, 0xFF, "beyond the 100 elements"),
        ("two_bit", 39, 0xFF, "beyond the 100 elements"),
        ("int8", 2, 0x80, "no code of int8"),
        ("int4", 2, 0x08, "no code of int4"),
        ("int4", 65, 0x11, "beyond the 100 elements"),
        ("fp4", 2, 0x08, "negative 0"),
        ("fp4", 65, 0x11, "beyond the 100 elements"),
        ("topk", 20, 0xFF, "do not rise"),
        ("topk", 3, 0x00, "in order"),
        ("topk", 115, 0xFF, "more than its 100 elements"),
    ],
)
def test_malformed_codes_are_refused(name: str, place: int, value: int, what: str) -> None:
    with pytest.raises(PayloadRefused, match=what):
        codecs.load_codec(name).unpack(memoryview(changed(name, place, value)), 100, SEED)
