"""The norm that decides about money: the same bits whatever the order, and no way around it."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.gradient.accumulate import Accumulator
from gradmarket.market.gradient.arrays import CHUNK
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.inspection import VALUE_BOUND, Diverged, Divergence, Usable, inspect_shards
from gradmarket.market.gradient.norm import compute_norm, square_sums
from gradmarket.market.gradient.payload import decode_shards, encode_payload
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry, list_sections
from gradmarket.market.gradient.sums import iterate_square_sums
from tests.kit.shards import shorten_shards
from tests.market.gradient_cases import LOSS, layouts, tensors_of

FP32 = load_codec("fp32")
SIGNALLING = np.uint32(0x7F800001).view(np.float32)
"""A NaN that raises the processor's invalid flag wherever it is computed with."""
LAYOUT = Layout(
    (
        LOSS,
        LayoutEntry("a", (5, 4), "gradient"),
        LayoutEntry("b", (7,), "gradient"),
        LayoutEntry("mean", (6,), "buffer"),
    )
)


short_shards = shorten_shards(8)


def verdict(tensors: dict[str, np.ndarray], bound: float, layout: Layout = LAYOUT) -> Usable | Diverged:
    return inspect_shards(layout, decode_shards(layout, encode_payload(layout, tensors, FP32, b""), FP32, b""), bound)


def with_element(name: str, value: float) -> dict[str, np.ndarray]:
    tensors = tensors_of(LAYOUT, 3)
    tensors[name].reshape(-1)[-1] = value
    return tensors


@given(layouts())
def test_sections_cover_every_shard_and_mark_gradients(layout: Layout) -> None:
    found = [
        section.gradient
        for index in range(len(layout.shards))
        for section in list_sections(layout, index)
        for _ in range(section.part.start, section.part.stop)
    ]
    assert found == [entry.kind == "gradient" for entry in layout.entries for _ in range(entry.size)]


@given(layouts(), st.integers(0, 2**32), st.floats(1e-3, 1e3))
def test_the_norm_is_of_the_gradients_alone(layout: Layout, seed: int, scale: float) -> None:
    tensors = tensors_of(layout, seed, scale)
    squares = sum(Fraction(float(x)) ** 2 for entry in layout.of("gradient") for x in tensors[entry.name].reshape(-1))
    found = verdict(tensors, 1e9, layout)
    assert isinstance(found, Usable)
    assert found.norm == pytest.approx(math.sqrt(squares), rel=1e-14)
    assert found.loss == tensors["loss"]


@given(layouts(), st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_shards_may_come_in_any_order(layout: Layout, seed: int, random: object) -> None:
    shards = list(decode_shards(layout, encode_payload(layout, tensors_of(layout, seed), FP32, b""), FP32, b""))
    assert inspect_shards(layout, random.sample(shards, len(shards)), 1e9) == inspect_shards(layout, shards, 1e9)


@pytest.mark.parametrize("name", ["loss", "a", "b", "mean"])
@pytest.mark.parametrize("value", [np.nan, SIGNALLING, np.inf, -np.inf])
def test_nothing_that_is_not_finite_is_usable(name: str, value: float) -> None:
    found = verdict(with_element(name, value), 1e9)
    assert isinstance(found, Diverged)
    assert found.reason is Divergence.NOT_FINITE


def test_a_nan_is_not_hidden_by_an_infinity() -> None:
    tensors = with_element("mean", np.nan)
    tensors["loss"] = np.array(np.inf, np.float32)
    assert verdict(tensors, 1e9) == verdict(with_element("mean", np.nan), 1e9)


def test_the_bound_itself_is_usable_and_the_next_norm_is_not() -> None:
    tensors = tensors_of(LAYOUT, 0)
    length = compute_norm([tensors["a"].reshape(-1), tensors["b"]])
    assert isinstance(verdict(tensors, length), Usable)
    assert verdict(tensors, math.nextafter(length, 0)) == Diverged(Divergence.NORM_OVER_BOUND, length)


@pytest.mark.parametrize("name", ["loss", "mean"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_loss_and_buffers_have_their_own_bound(name: str, sign: float) -> None:
    assert isinstance(verdict(with_element(name, sign * VALUE_BOUND), 1e3), Usable)
    found = verdict(with_element(name, sign * float(np.nextafter(np.float32(VALUE_BOUND), np.float32(np.inf)))), 1e3)
    assert isinstance(found, Diverged)
    assert found.reason is Divergence.VALUE_OVER_BOUND
    assert "value_over_bound" in str(found)


@given(st.floats(1e-30, 1e30), st.integers(0, 2**32))
def test_a_vector_within_the_norm_bound_can_be_summed(bound: float, seed: int) -> None:
    """An element of a vector within the norm bound is in the accumulator's range, even where the norm was rounded."""
    vector = np.random.default_rng(seed).standard_normal(4).astype(np.float32)
    vector *= np.float32(bound / compute_norm([vector]))
    if compute_norm([vector]) <= bound:
        Accumulator(4, bound, 2).add(vector)
    single = np.array([bound], np.float32)
    if compute_norm([single]) <= bound:
        Accumulator(1, bound, 2).add(single)


def pairwise(squares: list[float]) -> float:
    """The documented tree in plain Python: the second half onto the first, until one is left."""
    while len(squares) > 1:
        half = len(squares) // 2
        squares = [low + high for low, high in zip(squares[:half], squares[half:], strict=True)]
    return squares[0]


@pytest.mark.parametrize("size", [1, 5, CHUNK - 1, CHUNK, CHUNK + 3])
def test_the_norm_is_the_documented_tree_to_the_bit(size: int) -> None:
    vector = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    padded = [float(x) ** 2 for x in vector] + [0.0] * (-size % CHUNK)
    sums = [pairwise(padded[start : start + CHUNK]) for start in range(0, len(padded), CHUNK)]
    assert list(square_sums(vector)) == sums
    assert list(iterate_square_sums(vector)) == sums
    assert compute_norm([vector]) == math.sqrt(math.fsum(sums))


def test_huge_and_tiny_elements_neither_overflow_nor_vanish() -> None:
    assert compute_norm([np.full(4, 3e38, np.float32)]) == pytest.approx(2 * float(np.float32(3e38)))
    assert compute_norm([np.full(4, 1e-45, np.float32)]) == pytest.approx(2 * float(np.float32(1e-45)))
    assert compute_norm([]) == 0.0
