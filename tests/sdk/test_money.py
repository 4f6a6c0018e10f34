"""Amounts as people write them: a printed one can be given again, and a malformed one is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.errors import Refused
from gradmarket.market.money import TokenUnit


@given(st.integers(0, 10**30), st.integers(0, 24))
def test_a_printed_amount_is_parsed_to_the_same(amount: int, decimals: int) -> None:
    token = TokenUnit("GRAD", decimals)
    assert token.parse(token.text(amount)) == token.parse(str(amount)) == amount
    assert token.text(-amount) == ("-" if amount else "") + token.text(amount)


@pytest.mark.parametrize(
    "text", ["² GRAD", "1.² GRAD", "0.123 GRAD", "1 DARG", "0.5", "1.", "", "GRAD", ". GRAD", "-1 GRAD"]
)
def test_a_malformed_amount_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Refused, match=r"like '0\.01 GRAD'"):
        TokenUnit("GRAD", 2).parse(text)
