"""Sketches keep distances, have the same bits everywhere, and detect changes that a cheaper projection would miss."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gradmarket.market.gradient.projection import sketch_tensors
from gradmarket.market.terms import Hash
from gradmarket.market.wire import SKETCH_WIDTH

SEEDS = st.binary(min_size=32, max_size=32).map(Hash)


def normal(size: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def length(numbers: NDArray[np.float32]) -> float:
    return float(np.linalg.norm(numbers.astype(np.float64)))


def of(vector: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    return sketch_tensors({"t": vector}, Hash(seed.to_bytes(32, "big")))["t"]


def test_the_bits_are_pinned() -> None:
    tensors = {"a": normal(20_000), "b": np.ones((2, 3), np.float32), "c": normal(200_000)}
    found = sketch_tensors(tensors, Hash(b"s" * 32))
    assert found["a"][:3].tobytes().hex() == "df9c86418b35ac41f7a2a33f"
    assert found["b"][:3].tobytes().hex() == "000080be00000000000000bf"
    assert found["c"][:3].tobytes().hex() == "1685c542fa52ebc2224f81bf"
    assert {(numbers.shape, numbers.dtype.name) for numbers in found.values()} == {((SKETCH_WIDTH,), "float32")}


@pytest.mark.parametrize("size", [1, 5, 1000, 8192, 50_001])
def test_lengths_are_kept_on_average_over_seeds(size: int) -> None:
    vector = normal(size, seed=size)
    ratios = [length(of(vector, seed)) / length(vector) for seed in range(60)]
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.06)
    assert 0.6 < min(ratios) <= max(ratios) < 1.4


@given(SEEDS, st.integers(1, 20_000))
def test_a_sketch_is_a_function_of_values_seed_and_name_alone(seed: Hash, size: int) -> None:
    vector = normal(size)
    together = sketch_tensors({"other": normal(7, 9), "t": vector}, seed)
    alone = sketch_tensors({"t": vector.reshape(1, -1).copy()}, seed)
    assert together["t"].tobytes() == alone["t"].tobytes()


@given(SEEDS, st.integers(-20, 20))
def test_powers_of_two_come_through_exactly(seed: Hash, power: int) -> None:
    vector = normal(9000)
    scaled = sketch_tensors({"t": np.ldexp(vector, power)}, seed)["t"]
    np.testing.assert_array_equal(scaled, np.ldexp(sketch_tensors({"t": vector}, seed)["t"], power))


@pytest.mark.parametrize("step", [1, 64, 1024, 4096, 8192, 8193, 63_000])
def test_two_exchanged_elements_are_seen_whatever_their_distance(step: int) -> None:
    """Rows that are all 8192 long put i and i + 8192 in one place, and miss their exchange for every second seed.

    63,000 is a whole number of rows at six of the lengths that are drawn, as many as any distance.
    """
    vector = normal(70_000)
    exchanged = vector.copy()
    exchanged[[100, 100 + step]] = exchanged[[100 + step, 100]]
    missed = sum(np.array_equal(of(vector, seed), of(exchanged, seed)) for seed in range(100))
    assert missed <= 1


def test_a_constant_lie_does_not_cancel_between_blocks() -> None:
    lie = np.full(200_000, 1e-3, np.float32)
    assert all(0.5 < length(of(lie, seed)) / length(lie) < 1.5 for seed in range(20))


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_infinite_values_of_a_tensor_spoil_no_other_sketch(poison: float) -> None:
    bad = normal(10_000)
    bad[1234] = poison
    found = sketch_tensors({"bad": bad, "good": normal(10)}, Hash(bytes(32)))
    assert np.isnan(found["bad"]).all()
    np.testing.assert_array_equal(found["good"], sketch_tensors({"good": normal(10)}, Hash(bytes(32)))["good"])


def test_nothing_and_zeros() -> None:
    assert sketch_tensors({}, Hash(bytes(32))) == {}
    found = sketch_tensors({"empty": np.zeros((0, 3), np.float32), "zero": np.zeros(5, np.float32)}, Hash(bytes(32)))
    assert not any(numbers.any() for numbers in found.values())
