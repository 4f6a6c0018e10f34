"""Amounts as people write them, and the one unit that JSON has them in."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.money import TokenUnit, in_smallest

GRAD = TokenUnit("GRAD", 18)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("1000", 1000),
        ("1000 units", 1000),
        ("1e18", 10**18),
        ("1e18 units", 10**18),
        ("1.5e3 units", 1500),
        ("1 GRAD", 10**18),
        ("0.5 GRAD", 5 * 10**17),
        ("1e3 GRAD", 10**21),
        (" 0.000000000000000001 GRAD ", 1),
    ],
)
def test_amounts_in_usual_spellings_are_parsed(text: str, amount: int) -> None:
    assert GRAD.parse(text) == amount


@pytest.mark.parametrize(
    "text",
    ["", "GRAD", "0.5", "1.5 units", "1.55e1", "0.5 EUR", "-1", "1 GRAD GRAD", "1e GRAD", ".5 GRAD", "5. GRAD", "1e100",
     "0.0000000000000000001 GRAD", "٣", "1,5 GRAD", "0x10", "1" * 79, "nan", "inf GRAD"],
)  # fmt: skip
def test_malformed_amounts_are_refused(text: str) -> None:
    with pytest.raises(Refused, match="is no amount"):
        GRAD.parse(text)


@given(st.integers(0, 10**40), st.integers(0, 30))
def test_written_amounts_are_parsed_back(amount: int, decimals: int) -> None:
    token = TokenUnit("T", decimals)
    assert token.parse(token.text(amount)) == token.parse(str(amount)) == token.parse(f"{amount} units") == amount


@given(st.text(max_size=60))
def test_any_text_is_an_amount_or_refused(text: str) -> None:
    try:
        assert GRAD.parse(text) >= 0
    except Refused:
        return


def test_a_job_is_read_as_it_is_written_and_only_its_amounts_are_changed() -> None:
    rule = {"name": "controller", "floor": "1e9 units", "ceiling": "0.5 GRAD", "start": "7"}
    job = {"name": "5 GRAD", "price": rule, "budget": "2 GRAD", "stop": [{"spent": "1 GRAD"}, {"date": "2030-01-01"}]}
    assert in_smallest(job, lambda: GRAD) == {
        "name": "5 GRAD",
        "price": {"name": "controller", "floor": "1000000000", "ceiling": "500000000000000000", "start": "7"},
        "budget": "2000000000000000000",
        "stop": [{"spent": "1000000000000000000"}, {"date": "2030-01-01"}],
    }


def test_the_token_is_asked_only_where_an_amount_needs_it() -> None:
    def nobody() -> TokenUnit:
        raise AssertionError("asked")

    plain: dict[str, Any] = {"price": "7", "budget": 9, "stake": {"bond": "1", "validators": ["0x1 0x2"]}}
    assert in_smallest(plain, nobody) == plain


def test_an_amount_in_another_token_is_refused() -> None:
    with pytest.raises(JobRefused, match="is no amount") as refused:
        in_smallest({"price": {"floor": "7", "start": "1 EUR"}}, lambda: GRAD)
    assert refused.value.field == "price.start"
    with pytest.raises(JobRefused, match=r"stop\.1\.spent: '1 EUR' is no amount"):
        in_smallest({"stop": [{"spent": "1"}, {"spent": "1 EUR"}]}, lambda: GRAD)


def test_an_error_of_the_token_s_lookup_is_no_fault_of_the_amount() -> None:
    def nowhere() -> TokenUnit:
        raise Refused("not the address of a service")

    with pytest.raises(Refused, match="not the address") as refused:
        in_smallest({"price": "1 GRAD"}, nowhere)
    assert type(refused.value) is Refused
