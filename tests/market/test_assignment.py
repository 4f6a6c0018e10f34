"""The draw: the attack that every guard stops, and frequent polling without a gain."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.rules import assignment
from gradmarket.market.rules.assignment import (
    Candidate,
    Opening,
    Party,
    Reason,
    draw_candidates,
    leading_class,
    why_not,
)
from gradmarket.market.terms import Address, Hash, JobId, Units, domain_hash


def address(number: int) -> Address:
    return Address(f"0x{number:040x}")


def candidate(number: int, payout: int | None = None, network: str | None = None) -> Candidate:
    party = Party(address(number), f"operator-{payout or number}", address(1000 + (payout or number)), network)
    return Candidate(party, "cpu", Units(10), 1, Units(0), frozenset())


OPENING = Opening(JobId("job"), frozenset(), (), "cpu", Units(10), ("payout",))
HONEST = candidate(1)


@pytest.mark.parametrize(
    ("cheat", "opening", "reason"),
    [
        (replace(HONEST, suspended=True), OPENING, Reason.SUSPENDED),
        (replace(HONEST, determinism_class="gpu"), OPENING, Reason.OTHER_CLASS),
        (HONEST, replace(OPENING, tried=frozenset({address(1)})), Reason.ALREADY_TRIED),
        (HONEST, replace(OPENING, parties=(candidate(2, payout=1).party,)), Reason.NOT_SEPARATED),
        (replace(HONEST, least_price=Units(11)), OPENING, Reason.HIGHER_PRICE),
        (replace(HONEST, jobs=frozenset({JobId("other")})), OPENING, Reason.OTHER_JOB),
        (replace(HONEST, uncommitted=Units(9)), OPENING, Reason.NO_RESERVATION),
        (replace(HONEST, capacity=0), OPENING, Reason.AT_CAPACITY),
    ],
)
def test_each_guard_stops_its_attack_and_passes_the_honest_twin(
    cheat: Candidate, opening: Opening, reason: Reason
) -> None:
    assert why_not(cheat, opening) is reason
    assert why_not(HONEST, OPENING) is None


def test_networks_count_only_where_the_job_separates_them_and_loopback_never_does() -> None:
    one, other = candidate(1, network="10.0.0.0/24").party, candidate(2, network="10.0.0.0/24").party
    assert assignment.is_same_party(one, other, ("network",))
    assert not assignment.is_same_party(one, other, ("payout",))
    assert not assignment.is_same_party(replace(one, network=None), replace(other, network=None), ("network",))


def test_sybils_of_one_payout_get_one_place_of_three() -> None:
    sybils = [candidate(n, payout=99) for n in range(10, 20)]
    chosen = draw_candidates(Hash(b"s" * 32), [*sybils, candidate(1), candidate(2)], OPENING, 3)
    assert len(chosen) == 3
    assert len({c.party.payout for c in chosen}) == 3


@given(st.binary(min_size=32, max_size=32), st.integers(0, 12), st.permutations(range(1, 9)))
def test_the_draw_is_replayable_separate_and_blind_to_arrival(seed: bytes, count: int, order: list[int]) -> None:
    pool = [candidate(n, payout=n // 2) for n in order]
    chosen = draw_candidates(Hash(seed), pool, OPENING, count)
    assert chosen == draw_candidates(Hash(seed), sorted(pool, key=lambda c: c.party.worker), OPENING, count)
    assert len(chosen) <= count
    assert len({c.party.payout for c in chosen}) == len(chosen)


def test_every_worker_is_drawn_about_as_often() -> None:
    pool = [candidate(n) for n in range(1, 11)]
    times: Counter[Address] = Counter()
    for index in range(2000):
        seed = domain_hash("test", index.to_bytes(8, "big"))
        times.update(c.party.worker for c in draw_candidates(seed, pool, OPENING, 3))
    assert all(480 < count < 720 for count in times.values())  # 600 expected, five standard deviations


def test_the_window_grows_with_the_workers_that_may_still_ask() -> None:
    assert assignment.window_s(1) == 0.0
    assert assignment.window_s(3) == pytest.approx(0.015)
    assert assignment.window_s(1000) == 0.05


def test_the_leading_class_counts_separate_parties_not_identities() -> None:
    sybils = [("fast", candidate(n, payout=7).party) for n in range(10)]
    honest = [("slow", candidate(n).party) for n in (20, 21)]
    assert leading_class([*sybils, *honest], ("payout",)) == ("slow", 2)
    assert leading_class([], ("payout",)) is None


MIXABLE = frozenset({("cpu", "gpu"), ("gpu", "tpu")})


def of(determinism_class: str, number: int) -> Candidate:
    return replace(candidate(number), determinism_class=determinism_class)


@pytest.mark.parametrize(
    ("name", "at_work", "mixable", "may"),
    [
        ("gpu", (), frozenset(), False),
        ("gpu", (), MIXABLE, True),
        ("tpu", (), MIXABLE, False),
        ("gpu", ("cpu",), MIXABLE, True),
        ("tpu", ("gpu",), MIXABLE, False),
        ("cpu", ("gpu",), MIXABLE, True),
        ("tpu", ("cpu", "any name"), assignment.ALL, True),
    ],
)
def test_a_class_is_mixed_in_only_where_it_can_be_compared_with_all(
    name: str, at_work: tuple[str, ...], mixable: assignment.Mixable, may: bool
) -> None:
    reason = why_not(of(name, 1), replace(OPENING, at_work=at_work, mixable=mixable))
    assert reason is (None if may else Reason.OTHER_CLASS)


@given(st.lists(st.sampled_from(["cpu", "gpu", "tpu"]), min_size=1, max_size=8), st.integers(0, 2**32))
def test_any_two_that_are_drawn_can_be_compared_and_no_full_draw_is_missed(classes: list[str], seed: int) -> None:
    opening = replace(OPENING, determinism_class="gpu", mixable=MIXABLE)
    candidates = [of(name, number) for number, name in enumerate(classes, 1)]
    chosen = draw_candidates(Hash(seed.to_bytes(32, "big")), candidates, opening, 3)
    drawn = {one.determinism_class for one in chosen}
    assert not {"cpu", "tpu"} <= drawn
    possible = max(classes.count("gpu") + classes.count(other) for other in ("cpu", "tpu"))
    assert len(chosen) == min(3, possible)


def test_the_leading_class_counts_those_beside_it() -> None:
    parties = [("cpu", candidate(1).party), ("gpu", candidate(2).party), ("tpu", candidate(3).party)]
    parties.append(("tpu", candidate(4).party))
    assert leading_class(parties, ("payout",)) == ("tpu", 2)
    assert leading_class(parties, ("payout",), MIXABLE) == ("tpu", 3)
    assert leading_class(parties, ("payout",), frozenset({("cpu", "gpu")})) == ("cpu", 2)
    assert leading_class([], ("payout",), MIXABLE) is None
    assert leading_class(parties, ("payout",), assignment.ALL) == ("cpu", 4)
