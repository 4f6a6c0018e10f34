"""Freivalds' check of reproducible products: complete, and wrong at most with its stated probability."""

import pytest
import torch

from benchmarks.rig.product_check import check_exact_product, draw_numbers
from graphdoc.errors import Refused
from graphdoc.reproducible.exact import DEPTH, count_factor_bits, find_power, multiply_exactly
from tests.lanes import FULL, leave_to_full

SHAPES = [(30, 200, 25), (1, DEPTH, 1), (64, 3, 300), (9, 1024, 2048)]


def build_factors(shape: tuple[int, int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    m, k, n = shape
    left, right = torch.randn(m, k) * torch.logspace(-9, 9, k), torch.randn(k, n) * torch.logspace(-5, 5, n)
    left[0] = 0.0
    return left, right


@pytest.mark.parametrize("shape", leave_to_full((shape,) for shape in SHAPES))
def test_every_honest_product_passes_and_one_with_one_step_more_does_not(shape: tuple[int, int, int]) -> None:
    left, right = build_factors(shape)
    product = multiply_exactly(left, right)
    bits = sum(count_factor_bits(shape[1])) - 2
    steps = find_power(left, (1,)).double() * find_power(right, (0,)).double() * 2.0**-bits
    for number in range(20):
        seed = number.to_bytes(32, "big")
        assert check_exact_product(left, right, product, seed)
        place = number % shape[0], (7 * number) % shape[2]
        for least in (-steps[place], steps[place], 1e-3 * product[place]):
            wrong = product.clone()
            wrong[place] += least
            assert bool(wrong[place] == product[place]) or not check_exact_product(left, right, wrong, seed)


@FULL
@pytest.mark.parametrize("bits", [2, 1, 3])
def test_the_worst_lie_passes_with_the_documented_probability(bits: int) -> None:
    """One step more in one element of a row and one less in another vanish where both drawn numbers are equal."""
    torch.manual_seed(3)
    left, right = torch.randint(-9, 10, (8, 20)).float(), torch.randint(-9, 10, (20, 16)).float()
    right[0] = 9.0  # the steps of all columns are one
    wrong = multiply_exactly(left, right)
    wrong[3, 4] += 1.0
    wrong[3, 9] -= 1.0
    seeds = [number.to_bytes(32, "big") for number in range(2000)]
    passed = sum(check_exact_product(left, right, wrong, seed, 1, bits) for seed in seeds)
    assert abs(passed / len(seeds) - 2.0**-bits) < 0.045
    assert not any(check_exact_product(left, right, wrong, seed) for seed in seeds[:200])


def test_the_largest_numbers_are_still_exact() -> None:
    """All bits of all factors set, and of one sign: sums come up to 2^53."""
    left, right = torch.full((3, DEPTH), 2.0 - 2.0**-20), torch.full((DEPTH, DEPTH), 2.0 - 2.0**-20)
    product = multiply_exactly(left, right)
    assert check_exact_product(left, right, product, bytes(32))
    product[1, 5] += 2.0**-40
    assert not check_exact_product(left, right, product, bytes(32))


def test_inexact_products_are_refused_and_fractions_are_found() -> None:
    left, right = torch.ones(2, DEPTH + 1), torch.ones(DEPTH + 1, 2)
    with pytest.raises(Refused, match=f"check it by parts of {DEPTH}"):
        check_exact_product(left, right, left.double() @ right.double(), bytes(32))
    with pytest.raises(Refused, match="not finite"):
        check_exact_product(torch.full((2, 2), torch.inf), torch.ones(2, 2), torch.ones(2, 2).double(), bytes(32))
    ones = torch.ones(2, 2)
    for said in (torch.nan, torch.inf, 2.0 + 2.0**-45, 2.0**70):
        product = torch.full((2, 2), 2.0, dtype=torch.float64)
        product[0, 1] = said
        assert not check_exact_product(ones, ones, product, bytes(32))


def test_drawn_numbers_are_fair_and_follow_from_the_seed() -> None:
    numbers = draw_numbers(1001, 4, 20, bytes(32))
    assert numbers.shape == (1001, 4)
    assert torch.equal(numbers, draw_numbers(1001, 4, 20, bytes(32)))
    assert not torch.equal(numbers, draw_numbers(1001, 4, 20, bytes([1] * 32)))
    assert abs(float(numbers.mean()) / 2**20 - 0.5) < 0.02
    assert 0 <= float(numbers.min()) < float(numbers.max()) < 2**20
