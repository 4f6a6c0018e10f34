"""A job's risk on newcomers: bounded in money, number and time for any crowd; all of it where no other worker is."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.features.proven import seat_rules
from gradmarket.market.rules import newcomers
from gradmarket.market.rules.assignment import Opening, Party
from gradmarket.market.rules.newcomers import (
    MANY,
    Tried,
    at_once,
    choose_topped_up,
    count_lacking_places,
    does_model_diverge,
    in_turn,
    list_other_owners,
    may_fill_places,
    rest_s,
)
from gradmarket.market.terms import Address, JobId, Units

TRIED = Tried(places=12, stalled=0, delivered=3, since_stall_s=0.0, stall_s=60.0)
OPENING = Opening(JobId("job"), frozenset(), (), "cpu", Units(10), ("payout",))


def party(number: int, payout: int | None = None, network: str | None = None) -> Party:
    worker = Address(f"0x{number:040x}")
    return Party(worker, worker, Address(f"0x{payout or number:040x}"), network)


def test_a_quarter_of_the_places_goes_to_newcomers_until_one_stalls() -> None:
    assert at_once(TRIED) == 3
    assert at_once(replace(TRIED, places=1)) == 1
    assert at_once(replace(TRIED, stalled=1)) == 0
    assert at_once(replace(TRIED, stalled=1, since_stall_s=240.0)) == 1


def test_each_stall_beyond_the_proven_ones_doubles_the_pause_up_to_an_hour() -> None:
    def pause(stalled: int) -> float:
        return next(s for s in range(10**4) if at_once(replace(TRIED, stalled=stalled, since_stall_s=float(s))))

    assert [pause(stalled) for stalled in (1, 3, 4, 5, 6, 60)] == [240, 240, 480, 960, 1920, 3600]


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0, 1e9), st.floats(0, 1e6), st.integers(1, 10**4))
def test_newcomers_hold_no_more_than_a_quarter_whatever_happened(
    stalled: int, delivered: int, since: float, stall: float, places: int
) -> None:
    assert 0 <= at_once(Tried(places, stalled, delivered, since, stall)) <= max(1, places // 4)


@given(st.integers(1, 400), st.booleans())
def test_a_rest_never_shrinks_with_another_stall_and_ends_within_an_hour(stalls: int, known: bool) -> None:
    assert rest_s(stalls, known) <= rest_s(stalls + 1, known) <= newcomers.LONGEST_REST_S
    assert rest_s(stalls, True) <= rest_s(stalls, False)


def test_a_newcomer_rests_from_its_first_stall_on_and_a_known_worker_from_its_second() -> None:
    assert [rest_s(n, known=False) for n in (0, 1, 2, 3)] == [0.0, 30.0, 60.0, 120.0]
    assert [rest_s(n, known=True) for n in (0, 1, 2, 3)] == [0.0, 0.0, 30.0, 60.0]


@pytest.mark.parametrize(
    ("known", "opening", "places", "enough"),
    [
        ([party(1), party(2), party(3)], OPENING, 3, True),
        ([party(1), party(2)], OPENING, 3, False),
        ([party(1), party(2, payout=1), party(3)], OPENING, 3, False),
        ([party(1), party(2), party(3)], replace(OPENING, tried=frozenset({party(1).worker})), 3, False),
        ([party(1), party(2)], replace(OPENING, parties=(party(9, payout=1),)), 2, False),
        ([], OPENING, 0, True),
    ],
)
def test_known_workers_suffice_if_separate(known: list[Party], opening: Opening, places: int, enough: bool) -> None:
    assert may_fill_places(known, opening, places) is enough


def test_known_workers_fill_every_opening_and_an_idle_newcomer_one() -> None:
    two = [(OPENING, 2), (OPENING, 2)]
    assert count_lacking_places([party(1)], [], two) == 2
    assert count_lacking_places([party(1)], [party(2)], two) == 1
    assert count_lacking_places([], [party(1), party(2, payout=1)], two) == 2, (
        "of one payout they are one party, in each task"
    )
    assert count_lacking_places([], [party(1)], [(replace(OPENING, tried=frozenset({party(1).worker})), 2)]) == 2
    assert count_lacking_places([], [], [(OPENING, 0)]) == 0


@given(
    st.lists(st.integers(1, 9), unique=True), st.lists(st.integers(10, 19), unique=True), st.lists(st.integers(0, 4))
)
def test_more_present_workers_never_lack_more_places(known: list[int], idle: list[int], places: list[int]) -> None:
    parties, wanted = [party(n) for n in idle], [(OPENING, count) for count in places]
    few, many = (
        count_lacking_places([], parties, wanted),
        count_lacking_places([party(n) for n in known], parties, wanted),
    )
    assert 0 <= many <= few == max(0, sum(places) - len(idle))


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["a", "b", None])), max_size=40))
def test_turns_go_round_over_owners_and_lose_nobody(owners: list[tuple[int, str | None]]) -> None:
    asked = [party(100 + n, payout, network) for n, (payout, network) in enumerate(owners)]
    turns = in_turn(asked)
    assert sorted(turns, key=lambda each: each.worker) == asked


def test_a_thousand_of_one_network_do_not_keep_three_others_waiting() -> None:
    """Wherever the draw put them."""
    sybils = [party(10 + n, network="192.0.2.0/24") for n in range(1000)]
    honest = [party(1, network="198.51.100.0/24"), party(2, network="203.0.113.0/24"), party(3)]
    assert {*honest} <= {*in_turn([*sybils, *honest])[:4]}


def test_once_those_that_are_gone_hold_the_allowance_only_established_earners_are_covered_further() -> None:
    earned = {f"old {number}": Units(40) for number in range(3)} | {"young": Units(30)}

    def covered(locked: int, quorum: int = 2) -> set[str]:
        return choose_topped_up(earned, Units(10), Units(locked), Units(100), quorum)

    assert covered(99) == set(earned)
    assert covered(100) == earned.keys() - {"young"}
    assert covered(100, quorum=4) == set(earned), "too few established ones to go on without the others"


def test_a_place_that_was_left_pauses_its_owners_alone() -> None:
    def party(name: str, network: str | None) -> Party:
        return Party(Address(name), name, Address(name), network)

    left = [seat_rules.LeftPlace(float(number), f"payout {number}", f"network {number % 50}") for number in range(99)]
    assert seat_rules.find_pausing_place(party("fresh", "its own"), left) is None
    assert seat_rules.find_pausing_place(party("payout 0", "its own"), left) == left[0]
    assert seat_rules.find_pausing_place(party("fresh", "network 0"), left) == left[50], "the newest"
    exempt = [seat_rules.LeftPlace(0.0, "another", None)]
    assert seat_rules.find_pausing_place(party("fresh", None), exempt) is None


def of_networks(*names: str | None) -> list[Party]:
    return [party(number + 1, network=name) for number, name in enumerate(names)]


def test_a_model_diverges_by_reports_of_many_owners_and_few_others() -> None:
    many, few = of_networks(*map(str, range(MANY))), of_networks(*map(str, range(MANY - 1)))
    assert does_model_diverge(many, few)
    assert not does_model_diverge(few, [])
    assert not does_model_diverge(many, many)
    assert does_model_diverge(of_networks(*[None] * MANY), []), "on one machine payouts are all that tells owners apart"


def test_any_number_of_wallets_of_one_network_or_payout_are_one_owner() -> None:
    one_network = of_networks(*["10.0.0"] * 100)
    one_payout = [replace(each, payout=Address("0xp")) for each in of_networks(*map(str, range(100)))]
    assert not does_model_diverge(one_network, [])
    assert not does_model_diverge(one_payout, [])
    assert (
        list_other_owners(of_networks("10.0.0", "10.0.1", None), [party(99, network="10.0.0")])
        == (of_networks("10.0.0", "10.0.1", None)[1:])
    )


@pytest.mark.parametrize(
    ("left", "stood_s", "count"), [(3, 0.0, 3), (3, 1e9, 3), (0, 599.0, 0), (0, 600.0, 1), (-2, 600.0, 1)]
)
def test_a_round_that_stands_has_money_for_one_more(left: int, stood_s: float, count: int) -> None:
    assert newcomers.count_reservable(left, stood_s, lease_s=30.0) == count
