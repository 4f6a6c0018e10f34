"""Pay that comes late, because it vests or waits for a test, is neither given up nor lost to a voucher that is dead."""

from pathlib import Path
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey

from contracts import calls
from contracts.ledger import Ledger
from gradmarket.market.messages import Ruling
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Amount, Hash, ReplicaId, Units
from tests.onchain import HOUR, NewKey
from tests.worker.test_refused_payments import RedeemingWallet, warp
from worker.money.chain_view import ChainView

VEST, WINDOW_S = 16, 300
EVENT = Hash(b"\x0e" * 32)


@pytest.fixture
def validator(new_key: NewKey) -> PrivateKey:
    return new_key()


@pytest.fixture
def vesting(own_ledger: Ledger, new_key: NewKey, tmp_path: Path, validator: PrivateKey) -> RedeemingWallet:
    """The last 16 of its 40 units are locked."""
    quorum = calls.quorum_of([address_of(validator)], 1)
    terms: dict[str, Any] = {"vest": Units(VEST), "vest_window": WINDOW_S, "vest_quorum": quorum}
    return RedeemingWallet(own_ledger, new_key, tmp_path, decision_window=60, bond=Units(5), **terms)


def test_locked_pay_is_collected_although_a_later_voucher_is_dead(vesting: RedeemingWallet) -> None:
    assert vesting.redeemer.redeem(vesting.account)
    assert vesting.has == 40 - VEST
    vesting.takes(50)
    warp(vesting, 3 * HOUR)
    assert vesting.redeemer.redeem(vesting.account)
    assert (vesting.has, vesting.account.lost, vesting.account.redeemable) == (40, 10, 0)
    assert "is lost" in vesting.said.getvalue()


def test_a_dead_voucher_is_recorded_while_what_was_credited_in_time_is_locked(vesting: RedeemingWallet) -> None:
    vesting.takes(50)
    warp(vesting, 2 * HOUR - 200)
    vesting.redeemer.redeem(vesting.account)
    vesting.takes(60)
    warp(vesting, 210)
    assert vesting.redeemer.redeem(vesting.account)
    assert (vesting.account.lost, vesting.account.redeemable, vesting.account.closed) == (10, VEST, False)
    warp(vesting, WINDOW_S)
    assert vesting.redeemer.redeem(vesting.account)
    assert (vesting.has, vesting.account.redeemable, vesting.account.closed) == (50, 0, True)
    assert vesting.said.getvalue().count('"event": "voucher_lost"') == 1


def test_burnt_pay_is_not_reported_as_redeemed(vesting: RedeemingWallet, validator: PrivateKey) -> None:
    vesting.redeemer.redeem(vesting.account)
    job, place = vesting.job, vesting.job.market
    job.send(calls.accuse_vested(place, job.id, vesting.worker, Units(10), EVENT))
    case = calls.vested_case_id(job.id, vesting.worker, EVENT)
    signed = sign_digest(validator, digest_struct(vesting.ledger.domain(), Ruling(case, Amount(10), True)))
    job.send(calls.decide(place, case, True, [address_of(validator)], 1, [signed]))
    warp(vesting, WINDOW_S + 1)
    assert vesting.redeemer.redeem(vesting.account)
    assert (vesting.has, vesting.account.received, vesting.account.redeemable) == (40 - 10, 40 - 10, 0)
    told = [line for line in vesting.said.getvalue().splitlines() if '"event": "redeemed"' in line]
    assert [int(line.split('"amount": "')[1].split('"')[0]) for line in told] == [40 - VEST, VEST - 10]


def test_accused_pay_is_reported_as_locked_until_its_validators_rule(vesting: RedeemingWallet) -> None:
    vesting.redeemer.redeem(vesting.account)
    warp(vesting, WINDOW_S - 10)
    vesting.job.send(calls.accuse_vested(vesting.job.market, vesting.job.id, vesting.worker, Units(10), EVENT))
    warp(vesting, 20)
    vesting.redeemer._chain_view = ChainView(vesting.ledger, vesting.worker)  # the former view is a moment old
    assert vesting.redeemer.redeem(vesting.account)
    assert vesting.has == 40 - 10
    assert "is locked until its validators rule" in vesting.said.getvalue()


@pytest.fixture
def waiting(own_ledger: Ledger, new_key: NewKey, tmp_path: Path) -> RedeemingWallet:
    """Accepted for 60 units, of which 20 wait for a test of the worker."""
    wallet = RedeemingWallet(own_ledger, new_key, tmp_path)
    wallet.store.record_final_verdict(wallet.account, ReplicaId("a"), Units(20), accepted=True)
    return wallet


def test_a_worker_that_leaves_keeps_reserved_what_it_earned_without_a_voucher(waiting: RedeemingWallet) -> None:
    assert waiting.account.earned - waiting.account.vouchered == 20
    assert waiting.redeemer.close(waiting.account)
    assert waiting.ledger.account(waiting.job.id, waiting.worker).reserved == 60
    assert not waiting.account.closed
    waiting.takes(60)
    assert waiting.redeemer.close(waiting.account)
    assert (waiting.has, waiting.account.closed) == (60, True)


def test_pay_without_a_voucher_is_given_up_after_the_end_of_claims(waiting: RedeemingWallet) -> None:
    waiting.redeemer.redeem(waiting.account)
    warp(waiting, 3 * HOUR)
    assert waiting.redeemer.close(waiting.account)
    assert (waiting.has, waiting.account.closed) == (40, True)


def test_a_voucher_of_a_closed_account_opens_it(waiting: RedeemingWallet) -> None:
    waiting.store.paid_out(waiting.account, Units(40), closed=True)
    waiting.takes(60)
    assert not waiting.account.closed
