"""Draws: pinned, fair, and independent of the node, the step, the row, and the device's vector width."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphdoc.document import randomness
from graphdoc.document.randomness import hash_dropout, hash_indices
from graphdoc.errors import DocumentRefused

SEED = bytes(range(32))
N = 1 << 18


def agreement(one: Tensor, other: Tensor) -> float:
    """How far the share of equal bits is from a half, in standard deviations."""
    equal = (one == other).double().mean().item()
    return abs(equal - 0.5) * 2 * one.numel() ** 0.5


def bit(number: int, site: int, seed: bytes, stream: int = 0) -> Tensor:
    """bool[N]: this bit of every hash."""
    return (hash_indices(torch.empty(N), site, seed, stream) >> number & 1).bool()


@given(probability=st.floats(0.0, 0.95), site=st.integers(0, 2**31), seed=st.binary(min_size=32, max_size=32))
def test_dropout_zeroes_its_share_and_keeps_the_mean(probability: float, site: int, seed: bytes) -> None:
    dropped = hash_dropout(torch.ones(200, 200), probability, site, seed)
    zeros = (dropped == 0).float().mean().item()
    assert abs(zeros - probability) < 6 * (max(probability * (1 - probability), 1e-4) / 40_000) ** 0.5
    scale = torch.ones(()).div_(1.0 - probability)
    assert torch.equal(dropped, torch.where(dropped == 0, 0.0, scale))


@given(st.floats(0.0, 1.0, exclude_max=True, width=32))
def test_the_scale_of_dropout_is_torchs_own_quotient_in_every_type(probability: float) -> None:
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        kept = hash_dropout(torch.ones(64, dtype=dtype), probability, 3, SEED)
        scale = torch.ones((), dtype=dtype).div_(1.0 - probability)
        assert torch.equal(kept, torch.where(kept == 0, torch.zeros((), dtype=dtype), scale))


def test_bytes_of_the_hash_are_uniform() -> None:
    """Chi-squared of 255 degrees of freedom: over 400 once in 10^8."""
    bits = hash_indices(torch.empty(N), 3, SEED)
    for shift in (0, 8, 16, 24):
        counts = torch.bincount((bits >> shift & 0xFF).long(), minlength=256).double()
        chi_squared = ((counts - N / 256) ** 2 / (N / 256)).sum().item()
        assert chi_squared < 400


def test_neighbours_are_independent() -> None:
    """Chi-squared over pairs of the two highest bits of an element and the one 1, 2, 64, 256 or 1000 places on."""
    bits = hash_indices(torch.empty(N), 3, SEED) >> 28 & 0xF
    for distance in (1, 2, 64, 256, 1000):
        pairs = (bits[:-distance] * 16 + bits[distance:]).long()
        counts = torch.bincount(pairs, minlength=256).double()
        expected = len(pairs) / 256
        assert ((counts - expected) ** 2 / expected).sum().item() < 400


def test_sites_steps_and_streams_are_independent() -> None:
    draws = [(0, SEED, 0), (1, SEED, 0), (2, SEED, 0), (0, bytes(32), 0), (0, bytes(31) + b"\1", 0), (0, SEED, 1)]
    for number in (31, 24, 8, 0):
        masks = [bit(number, *draw) for draw in draws]
        for place, one in enumerate(masks):
            for other in masks[place + 1 :]:
                assert agreement(one, other) < 6


def test_rows_are_independent() -> None:
    mask = hash_dropout(torch.ones(64, N // 64), 0.5, 0, SEED) != 0
    for one, other in pairwise(mask):
        assert agreement(one, other) < 6


def test_a_part_of_a_tensor_draws_as_the_whole_does() -> None:
    """By the element's index alone: whatever vectors a device computes in, and however it cuts the work."""
    whole = hash_indices(torch.empty(1003), 5, SEED)
    assert all(
        torch.equal(hash_indices(torch.empty(size), 5, SEED), whole[:size]) for size in (1, 2, 3, 7, 8, 9, 31, 1000)
    )
    assert torch.equal(hash_indices(torch.empty(17, 59), 5, SEED).flatten(), whole)
    assert torch.equal(hash_indices(torch.empty(59, 17).t(), 5, SEED).flatten(), whole)


def test_the_words_of_plain_integers() -> None:
    """The same hash in Python's integers."""
    found = hash_indices(torch.empty(64), 3, SEED).tolist()
    assert [word & 0xFFFFFFFF for word in found] == [plain_hash(index, 3, SEED) for index in range(64)]


def plain_hash(index: int, site: int, seed: bytes) -> int:
    key = randomness.hashlib.sha256(b"dropout" + site.to_bytes(8, "big") + seed).digest()
    first, second = (int.from_bytes(key[start : start + 4], "big") for start in (0, 4))
    word = (index * 0x9E3779B1 + first) % 2**32
    word = (word ^ word >> 16) * 0x85EBCA6B % 2**32 ^ second
    word = (word ^ word >> 13) * 0xC2B2AE35 % 2**32
    return word ^ word >> 16


def test_dropout_is_pinned_for_every_device() -> None:
    kept = (hash_dropout(torch.ones(4, 16), 0.5, 3, SEED) != 0).int().flatten().tolist()
    assert "".join(map(str, kept)) == "0110011100000011001010010110111001011011011001110001100101101111"


def test_uniform_draws_fill_the_interval_evenly() -> None:
    drawn = randomness.draw_uniform(torch.empty(N), torch.float32, 0, SEED)
    assert 0.0 <= drawn.min() < drawn.max() < 1.0
    ordered = drawn.double().sort().values
    kolmogorov = (ordered - torch.arange(N, dtype=torch.float64) / N).abs().max().item()
    assert kolmogorov * N**0.5 < 2.2  # beyond it once in 10^4 (Kolmogorov 1933)


def test_normal_draws_have_the_normal_distribution() -> None:
    drawn = randomness.draw_normal(torch.empty(N), torch.float32, 0, SEED).double()
    assert drawn.isfinite().all()
    cumulative = torch.special.ndtr(drawn.sort().values)
    assert (cumulative - torch.arange(N, dtype=torch.float64) / N).abs().max().item() * N**0.5 < 2.2


def test_bernoulli_follows_each_element() -> None:
    chances = torch.tensor([0.0, 0.1, 0.5, 1.0]).unsqueeze(1).expand(4, N)
    means = randomness.draw_bernoulli(chances, chances, 0, SEED).mean(1)
    assert torch.allclose(means, torch.tensor([0.0, 0.1, 0.5, 1.0]), atol=0.005)
    assert (means[0], means[3]) == (0, 1)


def test_channels_are_dropped_whole() -> None:
    dropped = randomness.feature_dropout(torch.ones(64, 32, 3, 3), 0.25, 0, SEED).flatten(2)
    assert torch.equal(dropped.amin(-1), dropped.amax(-1))
    assert abs((dropped[..., 0] == 0).float().mean().item() - 0.25) < 0.06


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    normal = randomness.draw_normal(torch.empty(N), torch.float32, 1, SEED)
    dropped = randomness.alpha_dropout(normal, 0.3, 0, SEED)
    assert abs(dropped.mean().item()) < 0.02
    assert abs(dropped.var().item() - 1) < 0.02


def test_draws_out_of_range_are_refused() -> None:
    for probability in (1.0, -0.1, float("nan")):
        with pytest.raises(DocumentRefused, match="probability"):
            hash_dropout(torch.ones(4), probability, 0, SEED)
    with pytest.raises(DocumentRefused, match="elements"):
        hash_indices(torch.empty(2**31, device="meta"), 0, SEED)
    with pytest.raises(DocumentRefused, match="channels"):
        randomness.feature_dropout(torch.ones(4), 0.5, 0, SEED)
