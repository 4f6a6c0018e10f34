"""The parts of an aggregation by themselves: how many neighbours, the graph, the ring, masks, shares."""

from itertools import combinations

import numpy as np
import pytest
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.errors import PayloadRefused, Refused
from gradmarket.market.features import secure_sums
from gradmarket.market.features.secure_sums import degree, secret_sharing
from gradmarket.market.features.secure_sums.degree import GroupPlan, plan_group
from gradmarket.market.features.secure_sums.masks import add_masks
from gradmarket.market.features.secure_sums.ring import Ring, fixed_point, ring_for
from gradmarket.market.features.secure_sums.secret_sharing import PRIME, combine_shares, split_secret
from gradmarket.market.terms import Hash

BEACON = Hash(blake3(b"block").digest())


@pytest.mark.parametrize(
    ("holders", "corrupt", "dropped", "expected"),
    [
        (4, 1, 1, GroupPlan(0, 2, 3, 3)),
        (10, 1, 3, GroupPlan(0, 5, 6, 7)),
        (100, 10, 33, GroupPlan(32, 15, 56, 67)),
        (1000, 100, 333, GroupPlan(128, 109, 551, 667)),
    ],
)
def test_plans_are_pinned(holders: int, corrupt: int, dropped: int, expected: GroupPlan) -> None:
    assert plan_group(holders, corrupt, dropped) == expected


@given(st.integers(1, 60), st.integers(0, 20), st.integers(0, 30))
def test_a_plan_leaves_no_holder_alone_and_no_two_sets_a_quorum(holders: int, corrupt: int, dropped: int) -> None:
    try:
        found = plan_group(holders, corrupt, dropped)
    except Refused:
        return
    assert found.least - corrupt >= 2
    assert 2 * (found.quorum - corrupt) > holders - corrupt
    assert corrupt < found.threshold <= holders - 1 - dropped
    assert found.quorum <= found.least == holders - dropped


@pytest.mark.parametrize("counts", [(1, 1, 0), (3, 1, 1), (10, 0, 3), (10, 1, 5), (10, 4, 3), (1001, 1, 1)])
def test_a_group_that_cannot_be_protected_is_refused(counts: tuple[int, int, int]) -> None:
    with pytest.raises(Refused):
        plan_group(*counts)


def test_the_number_of_neighbours_grows_slower_than_that_of_holders() -> None:
    few, many = (2 * plan_group(count, count // 10, count // 3).cycles for count in (100, 1000))
    assert many < 5 * few


def test_the_distribution_of_distinct_neighbours_is_that_of_all_draws() -> None:
    """By trying out all pairs of two cycles among five others."""
    pairs = [set(pair) for pair in combinations(range(5), 2)]
    tried = [0] * 5
    for first in pairs:
        for second in pairs:
            tried[len(first | second)] += 4  # each pair in either order
    assert degree._count_distinct_ways(5, 2) == tried


@pytest.mark.parametrize(("holders", "corrupt", "dropped"), [(120, 12, 30), (300, 43, 50), (1000, 100, 333)])
def test_colluders_chosen_by_the_graph_have_no_secret_and_isolate_nobody(
    holders: int, corrupt: int, dropped: int
) -> None:
    """Bribed after the graph is known: all of them neighbours of one holder, or its whole border with the drop-outs."""
    found = plan_group(holders, corrupt, dropped)
    assert found.threshold > corrupt
    adjacent = secure_sums.draw_adjacency(BEACON, 1, 2, holders, found.cycles)
    for victim in range(0, holders, 37):
        border = np.flatnonzero(adjacent[victim])
        gone = border[: len(border) - found.threshold]
        assert len(border) - len(gone) - corrupt >= 1  # of those left, one at least is honest


def test_the_graph_is_symmetric_near_regular_and_everyones_own() -> None:
    adjacent = secure_sums.draw_adjacency(BEACON, 1, 2, 200, 10)
    assert (adjacent == adjacent.T).all()
    assert not adjacent.diagonal().any()
    counts = adjacent.sum(axis=1)
    assert counts.max() <= 20
    assert counts.mean() > 18
    assert (adjacent == secure_sums.draw_adjacency(BEACON, 1, 2, 200, 10)).all()
    for other in (secure_sums.draw_adjacency(BEACON, 1, 3, 200, 10), secure_sums.draw_adjacency(BEACON, 2, 2, 200, 10)):
        assert (adjacent != other).any()


def test_no_graph_of_many_falls_apart_by_chosen_drop_outs() -> None:
    """A greedy adversary calls dropped all neighbours of a few holders that it wants the sum of."""
    holders, dropped = 150, 30
    found = plan_group(holders, 15, dropped)
    adjacent = secure_sums.draw_adjacency(BEACON, 1, 2, holders, found.cycles)
    for size in range(1, 20):
        wanted = np.zeros(holders, np.bool_)
        wanted[:size] = True
        border = adjacent[wanted].any(axis=0) & ~wanted
        stay = ~border
        assert border.sum() > dropped or secure_sums.count_fewest_neighbours(adjacent, stay) < found.threshold


@given(st.integers(1, 2000), st.integers(1, 2**50))
def test_no_sum_wraps(holders: int, most: int) -> None:
    try:
        ring = ring_for(holders, most)
    except Refused:
        assert holders * most >= 2**63
        return
    for value in (most, -most):
        elements = ring.elements(np.full(1, value, np.int64), most)
        total = np.array([int(elements[0]) * holders % 2**ring.bits], np.uint64).astype(ring.dtype)
        assert ring.integers(total)[0] == holders * value


def test_units_are_refused_beyond_the_bound() -> None:
    point = fixed_point(0.5, 1000)
    assert point.most * 1000 < 2**31
    assert (point.integers(np.array([0.5, -0.5, 0.0], np.float32)) == [point.most // 2, -point.most // 2, 0]).all()
    for wrong in (1.1, float("nan"), float("-inf")):
        with pytest.raises(PayloadRefused):
            point.integers(np.array([wrong], np.float32))
    with pytest.raises(Refused, match="do not hold"):
        fixed_point(0.5, 2**30, 32)
    with pytest.raises(Refused, match="does not fit 64 bits"):
        ring_for(1000, 2**60)


@pytest.mark.parametrize("bits", [32, 64])
def test_a_mask_is_aes_256_in_counter_mode_from_block_2_on(bits: int) -> None:
    ring, keys = Ring(bits), [bytes([number]) * 32 for number in range(5)]
    whole = np.zeros(200_001, ring.dtype)
    add_masks(whole, keys[:2], keys[2:])
    expected = np.zeros_like(whole)
    for number, key in enumerate(keys):
        cipher = Cipher(algorithms.AES(key), modes.CTR((2).to_bytes(16, "big"))).encryptor()
        mask = np.frombuffer(cipher.update(bytes(whole.nbytes)), ring.dtype)
        expected = expected + mask if number < 2 else expected - mask
    assert (whole == expected).all()
    add_masks(whole, keys[2:], keys[:2])
    assert not whole.any()


@given(st.binary(min_size=31, max_size=31), st.integers(2, 8), st.integers(0, 4))
def test_any_threshold_of_shares_gives_the_secret(secret: bytes, threshold: int, more: int) -> None:
    rng = np.random.default_rng(int.from_bytes(secret[:8], "big"))
    coefficients = [int.from_bytes(rng.bytes(32), "little") % PRIME for _ in range(threshold - 1)]
    points = list(range(1, threshold + more + 1))
    shares = dict(zip(points, split_secret(secret, coefficients, points), strict=True))
    for _ in range(3):
        taken = rng.permutation(points)[:threshold].tolist()
        assert combine_shares({point: shares[point] for point in taken}) == secret


def test_fewer_shares_fit_every_secret() -> None:
    """For any other secret there is a polynomial through the same shares."""
    points, shares = [1, 2], split_secret(b"s" * 31, [123456789, 987654321], [1, 2])
    other = int.from_bytes(b"t" * 31, "little")
    first, second = (int.from_bytes(share, "little") - other for share in shares)
    # a + b = first and 2 a + 4 b = second
    b = (second - 2 * first) * pow(2, -1, PRIME) % PRIME
    assert split_secret(b"t" * 31, [(first - b) % PRIME, b], points) == shares


def test_the_modulus_is_prime() -> None:
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for witness in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        power = pow(witness, odd, PRIME)
        assert power in (1, PRIME - 1) or PRIME - 1 in [pow(power, 2**step, PRIME) for step in range(1, twos)]
    assert secret_sharing.WIDTH * 8 > PRIME.bit_length() > secret_sharing.SECRET * 8
