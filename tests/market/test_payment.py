"""Units, reservations ahead, and conservation."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.artifact import load_artifact
from gradmarket.market.errors import JobRefused
from gradmarket.market.rules import payment
from gradmarket.market.rules.payment import AccountStanding, top_up
from gradmarket.market.terms import Amount, Units


def test_the_unit_fits_tokens_of_6_and_18_decimals() -> None:
    assert payment.unit_of(18) == 10**9
    assert payment.unit_of(6) == 1
    assert payment.unit_of(0) == 1


def test_a_price_is_a_whole_number_of_units_within_the_packed_field() -> None:
    assert payment.in_units("price", Amount(10**15), Amount(10**9), payment.MAX_PRICE) == 10**6
    with pytest.raises(JobRefused, match="price: not a multiple of 1000000000"):
        payment.in_units("price", Amount(10**15 + 1), Amount(10**9))
    with pytest.raises(JobRefused, match="more than"):
        payment.in_units("price", Amount(2**48), Amount(1), payment.MAX_PRICE)


def test_one_worker_may_earn_a_job_s_whole_budget() -> None:
    """A reservation or batch beyond its account's members would be refused with those of all others in it."""
    abi: Any = load_artifact("GradMarket").abi
    (account,) = (one for one in abi if one.get("name") == "account")
    members = {one["name"]: int(one["type"].removeprefix("uint")) for one in account["outputs"][0]["components"]}
    most = 2 ** members["reserved"] - 1
    assert payment.in_units("budget", Amount(most), Amount(1)) == most
    with pytest.raises(JobRefused, match="budget: more than"):
        payment.in_units("budget", Amount(most + 1), Amount(1))


units = st.integers(0, 10**12).map(Units)


@given(units, units, units, st.integers(1, 10**6), st.integers(1, 100))
def test_a_top_up_covers_what_is_ahead_and_stops_there(
    reserved: Units, earned: Units, in_flight: Units, price: int, ahead: int
) -> None:
    standing = AccountStanding(reserved, earned, in_flight)
    added = top_up(standing, Units(price), ahead)
    after = AccountStanding(Units(reserved + added), earned, in_flight)
    assert added >= 0
    if reserved >= earned + in_flight:
        assert after.uncommitted >= price, "a worker that is drawn next must find its money reserved"
        assert top_up(after, Units(price), ahead) == 0, "nothing is reserved twice for the same work"


def test_an_idle_newcomer_locks_one_gradient_only() -> None:
    assert top_up(AccountStanding(Units(0), Units(0), Units(0)), Units(7), 20) == 7
    assert top_up(AccountStanding(Units(7), Units(0), Units(0)), Units(7), 20) == 0
    assert top_up(AccountStanding(Units(7), Units(7), Units(0)), Units(7), 20) == 7


def test_a_reservation_s_lead_is_at_most_the_delivered_work_and_four_while_pay_waits() -> None:
    assert top_up(AccountStanding(Units(35), Units(35), Units(0)), Units(7), 20) == 35
    assert top_up(AccountStanding(Units(280), Units(280), Units(0)), Units(7), 20) == 140
    assert top_up(AccountStanding(Units(280), Units(280), Units(0), waiting=Units(280)), Units(7), 20) == 28
    assert top_up(AccountStanding(Units(280), Units(280), Units(0), waiting=Units(245)), Units(7), 20) == 63
