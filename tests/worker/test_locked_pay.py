"""A worker redeems its free pay, keeps the account open, and collects the rest once its lock has passed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contracts import calls
from contracts.ledger import Ledger
from gradmarket.market.terms import Address
from tests.onchain import HOUR, NewKey
from tests.worker.test_refused_payments import RedeemingWallet, warp
from worker.features import vesting
from worker.money import known_chains
from worker.money.chain_view import ChainView
from worker.settings import WorkerSettings

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


def test_a_chain_whose_token_cannot_be_written_is_a_warning_beside_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    facts = SimpleNamespace(domain="a domain", chain_id=7, decimals=300, symbol="GRAD")
    account = SimpleNamespace(domain="a domain", closed=False)
    monkeypatch.setattr(known_chains, "list_known_chains", lambda _folder: [facts])
    monkeypatch.setattr(vesting, "open_account_store", lambda *_: SimpleNamespace(accounts=[account]))
    monkeypatch.setattr(vesting, "ledger_of", lambda *_: SimpleNamespace())
    warned = list[str]()
    locked = vesting.list_locked_pay(WorkerSettings(data=tmp_path), Address("0x" + "11" * 20), warned.append)
    assert [*locked] == []
    (warning,) = warned
    assert warning.startswith("locked pay on chain 7 is not known: ")
    assert warning.endswith("the market's token has 300 decimals")
