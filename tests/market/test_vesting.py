"""The locked part of a worker's pay at a time, the times of accusations, and the jobs that may vest."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gradmarket.market.features.vesting import PayLock
from gradmarket.market.job import JobSpec
from gradmarket.market.stakes import Vesting
from gradmarket.market.terms import Amount, Units

AT, WINDOW, VEST = 1_000, 100, Units(16)
JUDGE = "0x" + "11" * 20
TERMS: dict[str, Any] = {"validators": [JUDGE], "bond": "7"}
SPEC: dict[str, Any] = {
    "name": "digits",
    "model": {"architecture": "mlp"},
    "data": {"ready": "digits"},
    "step": {"rows": 8},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "rounds": 1,
    "price": "7",
}
AUDITED: dict[str, Any] = {"audit": {"probability": 0.5}}


def lock(unpaid: int) -> PayLock:
    return PayLock(Units(unpaid), AT, VEST, WINDOW)


def test_the_last_units_are_locked_until_the_window_has_passed() -> None:
    assert [lock(unpaid).compute_locked(AT + WINDOW) for unpaid in (0, 5, 16, 40)] == [0, 5, 16, 16]
    assert lock(40).compute_locked(AT + WINDOW + 1) == 0


@pytest.mark.parametrize(
    ("unpaid", "accused", "after", "expected"),
    [
        (40, 0, 0, 16),
        (40, 6, 0, 10),
        (40, 16, 0, 0),
        (9, 0, 0, 0),
        (9, 0, 51, 9),
        (9, 4, 51, 5),
        (0, 0, 51, 0),
        (40, 0, 101, 0),
    ],
    ids=["all", "the rest", "all accused", "more may come", "late", "late, the rest", "nothing", "free"],
)
def test_an_accusation_waits_for_the_whole_vest_while_there_is_time(
    unpaid: int, accused: int, after: int, expected: int
) -> None:
    assert lock(unpaid).choose_accused(Units(accused), AT + after) == expected


@given(unpaid=st.integers(0, 99), accused=st.integers(0, 99), after=st.integers(0, 200))
def test_no_more_is_accused_than_is_locked(unpaid: int, accused: int, after: int) -> None:
    chosen = lock(unpaid).choose_accused(Units(accused), AT + after)
    assert 0 <= chosen <= lock(unpaid).compute_locked(AT + after)


def test_the_highest_price_counts() -> None:
    vesting = Vesting.model_validate(TERMS)
    assert vesting.compute_units(Amount(30), Amount(10)) == 48


def test_a_spec_without_a_vest_has_no_field_of_it() -> None:
    assert "vesting" not in JobSpec.model_validate(SPEC).model_dump(mode="json")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"replication": {"name": "fixed"}}, "no task is audited"),
        (AUDITED | {"stake": TERMS}, "leave out stake"),
        ({"vesting": TERMS | {"threshold": 2}} | AUDITED, "more than there are"),
        ({"vesting": TERMS | {"bond": "0"}} | AUDITED, "costs nothing"),
        ({"vesting": TERMS | {"validators": [JUDGE, JUDGE]}} | AUDITED, "named twice"),
    ],
)
def test_specs_that_cannot_vest_are_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        JobSpec.model_validate(SPEC | {"vesting": TERMS} | change)


def test_an_audited_job_may_vest() -> None:
    assert JobSpec.model_validate(SPEC | AUDITED | {"vesting": TERMS}).vesting == Vesting.model_validate(TERMS)
