"""The offered fees follow the chain's price now, within the owner's ceiling, and by the nodes' rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.gas_price import GWEI, GasPrice, compute_offered_fees, compute_raised_fees
from contracts.transaction_types import Fees
from gradmarket.network.chain_errors import GasTooDear

WEI = st.integers(1, 10**6 * GWEI)
PRICES = st.builds(GasPrice, st.none() | WEI, WEI)


def minable(fees: Fees, price: GasPrice) -> bool:
    """EIP-1559: the base fee is covered, and the rest is no less than the usual tip."""
    return fees.most - (price.base or 0) >= min(fees.tip, price.tip)


@given(PRICES)
def test_the_offered_fees_can_be_mined_now(price: GasPrice) -> None:
    fees = compute_offered_fees(price)
    assert minable(fees, price)
    assert fees.legacy is (price.base is None)
    assert compute_raised_fees(fees, price, overdue=False) is None


@given(st.builds(GasPrice, WEI, WEI))
def test_an_offer_outlives_a_doubling_of_the_base_fee(price: GasPrice) -> None:
    assert minable(compute_offered_fees(price), GasPrice(2 * (price.base or 0), price.tip))


@given(PRICES, PRICES, st.booleans())
def test_one_replacement_reaches_the_price_now_and_is_one_that_nodes_take(
    before: GasPrice, now: GasPrice, overdue: bool
) -> None:
    """go-ethereum takes a replacement whose both fees are a tenth higher, others one with an eighth."""
    old = compute_offered_fees(before)
    if old.legacy != (now.base is None):
        return  # no chain changes so
    new = compute_raised_fees(old, now, overdue)
    if new is None:
        assert minable(old, now)
        assert not overdue
        return
    assert minable(new, now)
    assert 8 * new.most >= 9 * old.most
    assert 8 * new.tip >= 9 * old.tip


def test_a_base_fee_forty_times_as_high_takes_one_replacement_and_no_tip_beyond_the_usual() -> None:
    old = compute_offered_fees(GasPrice(GWEI, GWEI // 10))
    new = compute_raised_fees(old, GasPrice(40 * GWEI, GWEI // 10), overdue=False)
    assert new is not None
    assert new.most >= 80 * GWEI
    assert new.tip < GWEI // 8


@given(PRICES, PRICES, st.booleans(), WEI)
def test_no_offer_is_beyond_the_ceiling(before: GasPrice, now: GasPrice, overdue: bool, ceiling: int) -> None:
    try:
        old = compute_offered_fees(before, ceiling)
        assert old.most <= ceiling
        assert minable(old, before)
        new = compute_raised_fees(old, now, overdue, ceiling)
    except GasTooDear:
        return
    assert new is None or new.tip <= new.most <= ceiling


def test_gas_beyond_the_ceiling_is_refused_in_gwei() -> None:
    with pytest.raises(GasTooDear, match=r"waits: gas is 120 gwei, ceiling 50 gwei \(GRADMARKET_MAX_FEE\)"):
        compute_offered_fees(GasPrice(119 * GWEI, GWEI), 50 * GWEI)
    with pytest.raises(GasTooDear, match="gas is 120 gwei"):
        compute_raised_fees(Fees(50 * GWEI, GWEI), GasPrice(119 * GWEI, GWEI), overdue=False, ceiling=50 * GWEI)
