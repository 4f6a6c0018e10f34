"""A worker redeems its free pay, keeps the account open, and collects the rest once its lock has passed."""

from pathlib import Path
from typing import Any

from contracts import calls
from contracts.ledger import Ledger
from gradmarket.market.terms import Address
from tests.onchain import HOUR, NewKey
from tests.worker.test_refused_payments import RedeemingWallet, warp
from worker.money.chain_view import ChainView

WINDOW = 600


def test_the_last_pay_is_collected_once_its_lock_has_passed_and_after_the_end_of_claims_too(
    own_ledger: Ledger, new_key: NewKey, tmp_path: Path
) -> None:
    quorum = calls.quorum_of([Address("0x" + "11" * 20)], 1)
    vest = {"vest": 16, "vest_window": WINDOW, "vest_quorum": quorum}
    terms: dict[str, Any] = vest | {"decision_window": HOUR, "bond": 5}
    wallet = RedeemingWallet(own_ledger, new_key, tmp_path, **terms)
    warp(wallet, 2 * HOUR - 60)
    assert wallet.redeemer.close(wallet.account)
    assert (wallet.has, wallet.account.closed) == (24, False)
    assert "is locked until" in wallet.said.getvalue()
    sent = own_ledger.nonce(wallet.worker)
    assert wallet.redeemer.close(wallet.account)
    assert own_ledger.nonce(wallet.worker) == sent, "what is locked costs no gas"
    warp(wallet, WINDOW + 60)
    wallet.redeemer._chain_view = ChainView(own_ledger, wallet.worker)  # the former view is a moment old
    assert wallet.redeemer.close(wallet.account)
    assert (wallet.has, wallet.account.closed) == (40, True)
