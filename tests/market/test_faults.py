"""When a failure is the job's: separate parties share it. Strangers cannot pause a job where the proven can answer."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gradmarket.market.features.fault_reports import (
    LEAST,
    MANY,
    NOBODY,
    FaultClaim,
    Left,
    count_separate_parties,
    describe_pause,
    find_shared_claims,
)
from gradmarket.market.rules.assignment import Party
from gradmarket.market.rules.faults import describe_fault, shorten_printable
from gradmarket.market.terms import Address
from gradmarket.market.wire.poll import FaultKind, StepFault

PAYOUT = ("payout",)


def claim(number: int, place: str = "node 3", known: bool = False, payout: int | None = None) -> FaultClaim:
    paid = Address(f"0x{payout or number:040x}")
    return FaultClaim(Party(Address(f"0x{number:040x}"), paid, paid, None), (place,), known)


def test_one_party_pauses_nothing_however_many_wallets_it_has() -> None:
    claims = [claim(number, known=True, payout=7) for number in range(1, 30)]
    assert find_shared_claims(claims, 1, PAYOUT, NOBODY) == []
    assert find_shared_claims([claim(1, known=True)], 1, PAYOUT, NOBODY) == []


def test_a_quorum_of_the_proven_suffices_and_newcomers_wait_for_the_others() -> None:
    assert find_shared_claims([claim(1, known=True), claim(2, known=True)], 2, PAYOUT, Left(5, 5))
    assert find_shared_claims([claim(1), claim(2)], 2, PAYOUT, NOBODY)
    assert not find_shared_claims([claim(1), claim(2)], 2, PAYOUT, Left(0, 1))
    assert not find_shared_claims([claim(1), claim(2)], 3, PAYOUT, NOBODY)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 20), st.integers(0, 20))
def test_where_one_replica_decides_no_number_of_claims_pauses_anything_while_somebody_is_left(
    known: int, new: int, left: int, newcomers: int
) -> None:
    claims = [claim(number, known=number <= known) for number in range(1, known + new + 1)]
    found = find_shared_claims(claims, 1, PAYOUT, Left(left, newcomers))
    assert bool(found) is (known + new >= LEAST and not left and not newcomers)


def test_other_failures_are_not_shared() -> None:
    assert not find_shared_claims([claim(1, "node 3"), claim(2, "node 4")], 2, PAYOUT, NOBODY)


@given(
    st.lists(st.integers(1, 200), max_size=60, unique=True),
    st.integers(1, 5),
    st.integers(1, 10),
    st.integers(0, 100),
)
def test_newcomers_alone_pause_nothing_while_a_proven_worker_is_left(
    numbers: list[int], quorum: int, left: int, newcomers: int
) -> None:
    assert find_shared_claims([claim(number) for number in numbers], quorum, PAYOUT, Left(left, newcomers)) == []


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.sampled_from("ab")), max_size=40), st.integers(1, 5))
def test_shared_claims_are_one_failure_of_a_quorum_of_separate_parties(
    made: list[tuple[int, bool, str]], quorum: int
) -> None:
    claims = [claim(number, place, known) for number, known, place in made]
    for left in (NOBODY, Left(0, 3), Left(2, 3)):
        found = find_shared_claims(claims, quorum, PAYOUT, left)
        if found:
            parties = count_separate_parties([each.party for each in found], PAYOUT)
            assert parties >= max(LEAST, quorum)
            assert len({each.place for each in found}) == 1
            if left != NOBODY:
                known = count_separate_parties([each.party for each in found if each.known], PAYOUT)
                assert quorum >= LEAST
                assert known >= quorum or (not left.known and parties >= MANY * quorum)


@given(st.lists(st.integers(1, 40), max_size=20, unique=True), st.integers(1, 5))
def test_more_claims_never_make_it_less_the_jobs(numbers: list[int], quorum: int) -> None:
    claims = [claim(number) for number in numbers]
    if find_shared_claims(claims, quorum, PAYOUT, NOBODY):
        assert find_shared_claims([*claims, claim(99)], quorum, PAYOUT, NOBODY)


TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""Bidirectional classes of UAX #9 that turn their neighbours."""


@given(st.text(max_size=600))
def test_a_shortened_message_is_taken_and_moves_no_cursor(text: str) -> None:
    fault = StepFault(kind=FaultKind.CRASHED, message=shorten_printable(text, 300))
    assert not {unicodedata.category(letter) for letter in fault.message} & {"Cc", "Cs", "Zl", "Zp"}
    assert not {unicodedata.bidirectional(letter) for letter in fault.message} & TURNS


@pytest.mark.parametrize("text", ["a\x1b[2J", "line\nline", "\u202eright to left", "\x00", "x" * 301])
def test_a_message_with_terminal_controls_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        StepFault(kind=FaultKind.CRASHED, message=text)


@pytest.mark.parametrize("kind", FaultKind)
def test_every_kind_of_fault_is_described_with_its_place_and_remedy(kind: FaultKind) -> None:
    fault = StepFault(
        kind=kind, node="node 3 (nll_loss.default)", partition="train", input="y", row=17, message="Too many."
    )
    said = describe_pause(fault, 3, 0, 4)
    for part in ("3 separate workers", "task 0 of round 4", "node 3 (nll_loss.default)", "partition train", "row 17"):
        assert part in said
    assert describe_fault(StepFault(kind=kind))
