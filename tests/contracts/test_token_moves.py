"""A token is tried before money is at stake: its fee on top would be other jobs' money, its loss a worker's."""

import pytest

from contracts.ledger import Ledger
from contracts.local import LocalChain
from contracts.rpc import call_json_rpc
from contracts.token_moves import TokenMove, token_move
from gradmarket.market.signing import address_of, checksum_address
from tests.fee_token import market_over_fee_token, takes
from tests.onchain import NewKey, open_on, with_money

SOMEONE = checksum_address("0x" + "5d" * 20)


def test_our_own_token_moves_the_whole_amount(ledger: Ledger, new_key: NewKey) -> None:
    rich = address_of(with_money(ledger, new_key(), 1001))
    assert token_move(ledger.web3, ledger.deployment.token, rich, SOMEONE) == TokenMove(500, 500, 500)
    assert ledger.balance(rich) == 1001
    assert ledger.balance(SOMEONE) == 0


@pytest.mark.parametrize(
    ("top", "lost", "seen", "why"),
    [
        (0, 0, (500, 500), ""),
        (1, 0, (505, 500), "other jobs' money"),
        (0, 1, (500, 495), "less than promised"),
    ],
)
def test_a_fee_is_seen_in_a_market_s_money_before_anybody_is_paid(
    anvil: LocalChain, new_key: NewKey, top: int, lost: int, seen: tuple[int, int], why: str
) -> None:
    ledger = market_over_fee_token(anvil.connect())
    open_on(ledger, new_key, deposit=1000)
    takes(ledger, top, lost)
    place = ledger.deployment
    move = token_move(ledger.web3, place.token, place.contract, SOMEONE)
    assert move == TokenMove(500, *seen)
    assert why in move.fault
    assert bool(move.fault) is bool(why)


def test_a_token_move_that_cannot_be_traced_is_none(ledger: Ledger, own_ledger: Ledger) -> None:
    assert token_move(ledger.web3, ledger.deployment.token, SOMEONE, ledger.deployment.contract) is None
    call_json_rpc(own_ledger.web3, "anvil_setCode", own_ledger.deployment.token, "0x60006000fd")
    assert token_move(own_ledger.web3, own_ledger.deployment.token, SOMEONE, own_ledger.deployment.contract) is None
