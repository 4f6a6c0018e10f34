"""A token that pays nobody for a while costs a worker nothing: its vouchers become credits before claims end."""

import time
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from contracts import calls
from contracts.ledger import Ledger
from contracts.local import LocalChain, fund_gas
from contracts.packing import PackedGroup
from contracts.rpc import call_json_rpc
from gradmarket.market.errors import Refused
from gradmarket.market.money import TokenUnit
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Amount, Hash, JobId, Units
from tests.onchain import ETHER, HOUR, NewKey, open_on
from worker.journal import Journal
from worker.money.account_store import AccountStore, JobAccount
from worker.money.chain_view import ChainView
from worker.money.redeemer import GasCeiling, Redeemer

REFUSES = "0x60006000fd"
"""A token's code that reverts whatever it is asked."""
BURNS_ALL = "0xfe"
"""An invalid instruction: takes all gas that it is given."""


class RedeemingWallet:
    """A worker with a voucher over 40 units of a job."""

    def __init__(self, ledger: Ledger, new_key: NewKey, folder: Path, cumulative: int = 40, **terms: Any) -> None:
        self.ledger, self.key = ledger, new_key()
        key = self.key
        self.worker, self.said = address_of(key), StringIO()
        fund_gas(ledger.web3, self.worker, ETHER)
        self.job = open_on(ledger, new_key, **terms)
        self.job.reserve((self.worker, 100))
        self.store = AccountStore(folder / "book.json")
        names = {"chain_id": 31337, "contract": ledger.deployment.contract, "instance": ledger.deployment.instance}
        self.store.record_offer(
            JobAccount(
                **names, chain_job=self.job.id, job=JobId("a"), signer=address_of(self.job.signer), unit=Amount(1)
            )
        )
        self.takes(cumulative)
        view = ChainView(ledger, self.worker)
        money = TokenUnit("GRAD", 18)
        self.redeemer = Redeemer(view, key, self.store, Journal(True, self.said), money, None)

    def takes(self, cumulative: int) -> None:
        """A voucher of the market's."""
        voucher, signature = self.job.voucher(self.worker, cumulative)
        self.store.take(self.account, voucher, signature, Units(0))

    @property
    def account(self) -> JobAccount:
        return self.store.account(self.ledger.domain(), self.job.id)

    @property
    def has(self) -> int:
        return self.ledger.balance(self.worker)


@pytest.fixture
def wallet(own_ledger: Ledger, new_key: NewKey, tmp_path: Path) -> RedeemingWallet:
    return RedeemingWallet(own_ledger, new_key, tmp_path)


@pytest.fixture
def token_code(own_ledger: Ledger) -> str:
    """The sound token's code."""
    return own_ledger.web3.eth.get_code(own_ledger.deployment.token).to_0x_hex()  # type: ignore[no-any-return]


def becomes(wallet: RedeemingWallet, code: str) -> None:
    call_json_rpc(wallet.ledger.web3, "anvil_setCode", wallet.ledger.deployment.token, code)


def warp(wallet: RedeemingWallet, seconds: int) -> None:
    call_json_rpc(wallet.ledger.web3, "evm_increaseTime", seconds)
    call_json_rpc(wallet.ledger.web3, "evm_mine")


def settle(wallet: RedeemingWallet, units: int) -> None:
    group = PackedGroup(wallet.worker, Units(units), (Hash(bytes(32)),))
    wallet.job.send(calls.settle_packed(wallet.job.market, wallet.job.id, 0, [group]))


def test_gas_beyond_the_owner_s_ceiling_is_waited_for_until_claims_end_soon(wallet: RedeemingWallet) -> None:
    wallet.redeemer._ceiling = GasCeiling(10**9, urgent_s=600.0)
    call_json_rpc(wallet.ledger.web3, "anvil_setNextBlockBaseFeePerGas", hex(40 * 10**9))
    call_json_rpc(wallet.ledger.web3, "evm_mine")
    assert not wallet.redeemer.redeem(wallet.account)
    assert not wallet.redeemer.close(wallet.account)
    assert wallet.ledger.nonce(wallet.worker) == 0
    assert "ceiling 1 gwei (GRADMARKET_WORKER_MAX_FEE)" in wallet.said.getvalue()
    left = wallet.job.claim_until - int(wallet.ledger.web3.eth.get_block("latest")["timestamp"])
    warp(wallet, left - 300)
    wallet.redeemer._chain_view = ChainView(wallet.ledger, wallet.worker)  # the former view is a moment old
    call_json_rpc(wallet.ledger.web3, "anvil_setNextBlockBaseFeePerGas", hex(40 * 10**9))
    call_json_rpc(wallet.ledger.web3, "evm_mine")
    assert wallet.redeemer.redeem(wallet.account)
    assert wallet.has == 40


def test_a_credit_waits_for_the_owner_s_ceiling_after_the_end_of_claims(
    wallet: RedeemingWallet, token_code: str
) -> None:
    becomes(wallet, REFUSES)
    assert not wallet.redeemer.redeem(wallet.account)
    becomes(wallet, token_code)
    warp(wallet, 3 * HOUR)
    sent = wallet.ledger.nonce(wallet.worker)
    wallet.redeemer._ceiling = GasCeiling(10**9, urgent_s=600.0)
    wallet.redeemer._chain_view = ChainView(wallet.ledger, wallet.worker)  # the former view is a moment old
    call_json_rpc(wallet.ledger.web3, "anvil_setNextBlockBaseFeePerGas", hex(40 * 10**9))
    call_json_rpc(wallet.ledger.web3, "evm_mine")
    assert not wallet.redeemer.redeem(wallet.account)
    assert wallet.ledger.nonce(wallet.worker) == sent
    wallet.redeemer._ceiling = None
    assert wallet.redeemer.redeem(wallet.account)
    assert wallet.has == 40


def test_the_contract_itself_is_no_payout(wallet: RedeemingWallet) -> None:
    view, money = ChainView(wallet.ledger, wallet.worker), TokenUnit("GRAD", 18)
    with pytest.raises(Refused, match="pays nothing to itself"):
        Redeemer(view, wallet.key, wallet.store, Journal(True, wallet.said), money, wallet.ledger.deployment.contract)


@pytest.mark.parametrize("code", [REFUSES, BURNS_ALL])
def test_a_voucher_is_credited_while_the_token_refuses_and_collected_after_the_end_of_claims(
    wallet: RedeemingWallet, token_code: str, code: str
) -> None:
    becomes(wallet, code)
    assert not wallet.redeemer.redeem(wallet.account)
    onchain = wallet.ledger.account(wallet.job.id, wallet.worker)
    assert (onchain.vouchered, onchain.withdrawn) == (40, 0)
    assert "nothing is lost" in wallet.said.getvalue()
    warp(wallet, 3 * HOUR)
    becomes(wallet, token_code)
    assert wallet.redeemer.redeem(wallet.account)
    assert (wallet.has, wallet.account.redeemable) == (40, 0)


def test_credited_pay_costs_no_further_gas_while_the_token_refuses(wallet: RedeemingWallet) -> None:
    becomes(wallet, REFUSES)
    wallet.redeemer.redeem(wallet.account)
    sent = wallet.ledger.nonce(wallet.worker)
    wallet.redeemer.redeem(wallet.account)
    assert wallet.ledger.nonce(wallet.worker) == sent


@pytest.mark.parametrize("settled", [0, 30])
def test_a_voucher_that_died_closes_its_account_with_one_sentence(wallet: RedeemingWallet, settled: int) -> None:
    if settled:
        settle(wallet, settled)
    warp(wallet, 3 * HOUR)
    assert wallet.redeemer.redeem(wallet.account)
    assert (wallet.account.lost, wallet.account.redeemable, wallet.account.closed) == (40 - settled, 0, True)
    assert wallet.redeemer.accounts() == []
    assert (wallet.has, wallet.ledger.nonce(wallet.worker)) == (settled, int(settled > 0))
    assert wallet.said.getvalue().count('"event": "voucher_lost"') == 1
    assert "tried again" not in wallet.said.getvalue()


def test_a_voucher_that_a_batch_paid_closes_its_account_after_the_end_of_claims(wallet: RedeemingWallet) -> None:
    settle(wallet, 40)
    warp(wallet, 3 * HOUR)
    assert wallet.redeemer.redeem(wallet.account)
    assert (wallet.has, wallet.account.lost, wallet.account.closed) == (40, 0, True)
    assert "voucher_lost" not in wallet.said.getvalue()


def test_a_payment_that_a_re_org_dropped_after_the_account_s_end_is_redeemed_again(wallet: RedeemingWallet) -> None:
    before = call_json_rpc(wallet.ledger.web3, "evm_snapshot")
    assert wallet.redeemer.close(wallet.account)
    assert (wallet.has, wallet.account.closed) == (40, True)
    wallet.redeemer.reopen_dropped_accounts(HOUR)
    assert wallet.account.closed, "the chain has paid all"
    call_json_rpc(wallet.ledger.web3, "evm_revert", before)
    wallet.redeemer.reopen_dropped_accounts(0.0)
    assert (wallet.has, wallet.account.closed) == (0, True), "it ended before the last 0 s"
    wallet.redeemer.reopen_dropped_accounts(HOUR)
    assert (wallet.account.closed, wallet.account.redeemable) == (False, 40)
    assert wallet.redeemer.redeem(wallet.account)
    assert (wallet.has, wallet.account.redeemable) == (40, 0)
    assert wallet.said.getvalue().count('"event": "payment_dropped"') == 1


@pytest.mark.parametrize(("off_s", "due"), [(-30 * HOUR, True), (30 * HOUR, False)])
def test_the_end_of_claims_follows_the_chain_s_time_alone(
    own_ledger: Ledger, new_key: NewKey, off_s: int, due: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The machine's clock is days off, to either side: due dates follow the chain."""
    wallet = RedeemingWallet(own_ledger, new_key, tmp_path)
    real = time.time
    monkeypatch.setattr("time.time", lambda: real() + off_s)
    if due:
        warp(wallet, int(1.5 * HOUR))
    assert wallet.redeemer.due(wallet.account, None, HOUR) is due
    seen = ChainView(own_ledger, wallet.worker).wait_for_reservation(wallet.job.id, Units(1))
    assert abs(seen.claim_until - seen.now - (0.5 if due else 2) * HOUR) < 60


def test_a_chain_that_mines_nothing_has_the_time_of_its_next_block(own_anvil: LocalChain, own_ledger: Ledger) -> None:
    call_json_rpc(own_ledger.web3, "evm_increaseTime", HOUR)
    assert own_ledger.next_time() - own_ledger.block().time >= HOUR - 60
