"""A job's deposit goes in once, and what nobody earned comes back to the unit."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from onchain import ETHER, NewKey
from till import BUDGET, PRICE, Till, busy, check

from gradmarket.contracts import claims
from gradmarket.contracts.ledger import Ledger
from gradmarket.contracts.local import fund_gas
from gradmarket.contracts.rpc import request
from gradmarket.contracts.transactions import mined
from gradmarket.market.terms import Amount, JobState, Units
from gradmarket.market.wire import hash_of
from gradmarket.requester.chain import escrow, funding, reconcile
from gradmarket.requester.chain.office import Office
from gradmarket.requester.store.tables import Event, Transaction


def test_a_published_job_is_funded_and_runs(till: Till) -> None:
    job_id = till.new_job()
    till.settle_down()
    job = till.job(job_id)
    chain = till.ledger.job(job.chain_job or 0)
    assert (job.state, job.reason, job.deposited) == (JobState.RUNNING, "", BUDGET)
    assert (chain.requester, chain.deposited, chain.unit) == (till.desk.sender, BUDGET, 1)
    assert (job.expiry, job.claim_until) == (chain.expiry, chain.claim_until)
    assert chain.claim_until - chain.expiry == till.policy.claim_window_s
    assert till.ledger.is_signer(job.chain_job or 0, till.desk.signer)
    assert [row.kind for row in till.all(Transaction)] == ["approve", "open"]
    assert [event.kind for event in till.all(Event)] == ["funded"]


def test_two_jobs_need_one_allowance(till: Till) -> None:
    ids = [till.new_job(), till.new_job()]
    till.settle_down()
    assert len({till.job(job_id).chain_job for job_id in ids}) == 2
    assert sorted(row.kind for row in till.all(Transaction)) == ["approve", "open", "open"]


def test_the_job_s_own_end_is_the_contract_s_expiry(till: Till) -> None:
    job_id = till.new_job(deadlines={"end": "2099-01-01T00:00:00Z"})
    till.settle_down()
    assert till.job(job_id).expiry == 4070908800


def test_a_job_whose_end_has_come_says_why_it_does_not_start(till: Till) -> None:
    job_id = till.new_job(deadlines={"end": "2020-01-01T00:00:00Z"})
    till.settle_down()
    job = till.job(job_id)
    assert (job.state, job.chain_job) == (JobState.AWAITING_FUNDS, None)
    assert "BadTerms" in job.reason


def test_without_money_it_waits_and_names_the_sum(till: Till) -> None:
    fund_gas(till.ledger.web3, till.desk.sender, ETHER)
    job_id = till.new_job()
    till.desk = replace(till.desk, grant=None)
    till.office = Office(till.desk)
    till.settle_down()
    job = till.job(job_id)
    assert job.state == JobState.AWAITING_FUNDS
    assert str(BUDGET) in job.reason
    assert till.desk.sender in job.reason
    till.restart()
    till.settle_down()
    assert till.job(job_id).state == JobState.RUNNING


@pytest.mark.parametrize("sent", [False, True])
def test_a_deposit_is_made_once_though_the_opening_is_killed(till: Till, sent: bool) -> None:
    job_id = till.new_job()
    till.office.step()
    assert [row.kind for row in till.all(Transaction)] == ["approve"]
    assert funding.open_jobs(till.desk)
    (row,) = till.all(Transaction, Transaction.kind == "open")
    assert row.state == "prepared"
    if sent:
        till.ledger.web3.eth.send_raw_transaction(row.raw)
    till.restart()
    till.settle_down()
    assert till.job(job_id).state == JobState.RUNNING
    assert len(till.all(Transaction, Transaction.kind == "open")) == 1
    assert till.ledger.balance(till.desk.sender) == 0


def test_a_job_cancelled_while_it_is_opened_gets_its_deposit_back(
    own_ledger: Ledger, till_on: Callable[[Ledger], Till]
) -> None:
    till = till_on(own_ledger)
    till.running_job()
    job_id = till.new_job()
    assert till.desk.grant is not None
    till.desk.grant(Amount(BUDGET))
    request(own_ledger.web3, "evm_setAutomine", False)
    till.settle_down()
    assert till.ledger.balance(till.desk.sender) == BUDGET
    till.set_job(job_id, state=JobState.CANCELLED)
    request(own_ledger.web3, "evm_mine")
    request(own_ledger.web3, "evm_setAutomine", True)
    till.settle_down()
    job = till.job(job_id)
    assert (job.state, job.deposited, job.refunded) == (JobState.CANCELLED, BUDGET, BUDGET)
    assert own_ledger.balance(till.desk.sender) == BUDGET


def test_an_ended_job_settles_at_once_and_gives_back_all_but_what_is_reserved(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    till.settle_down()
    till.earns(job_id, worker)
    till.set_job(job_id, state=JobState.FINISHED)
    till.settle_down()
    job, chain = till.job(job_id), till.ledger.job(till.job(job_id).chain_job or 0)
    assert chain.batches == 2
    assert job.deposited == BUDGET
    assert job.refunded == BUDGET - chain.reserved == till.ledger.balance(till.desk.sender)
    assert till.ledger.free(job.chain_job or 0) == 0
    check(till, job_id, worker, 8)


def test_when_the_workers_have_released_the_rest_comes_back_too(till: Till, new_key: NewKey) -> None:
    job_id, key = till.running_job(), new_key()
    worker = till.joins(job_id, key)
    till.settle_down()
    till.earns(job_id, worker)
    till.settle_down()
    till.set_job(job_id, state=JobState.FINISHED)
    till.settle_down()
    fund_gas(till.ledger.web3, worker, ETHER)
    chain_job = till.job(job_id).chain_job or 0
    mined(claims.redeem(till.ledger, key, *till.voucher(job_id, worker)))
    mined(claims.release(till.ledger, key, chain_job, Units(0)))
    till.settle_down()
    job = till.job(job_id)
    assert (job.deposited, job.refunded) == (BUDGET, BUDGET - PRICE)
    assert till.ledger.balance(worker) == PRICE
    assert reconcile.differences(till.desk, job_id) == []


def test_what_a_silent_worker_kept_comes_back_after_the_claim_window(
    own_ledger: Ledger, till_on: Callable[[Ledger], Till], new_key: NewKey
) -> None:
    till = till_on(own_ledger)
    job_id = till.running_job()
    worker = till.joins(job_id, new_key())
    till.settle_down()
    till.earns(job_id, worker)
    till.settle_down()
    till.set_job(job_id, state=JobState.FINISHED)
    till.settle_down()
    job = till.job(job_id)
    assert job.refunded < BUDGET - PRICE
    request(own_ledger.web3, "evm_setNextBlockTimestamp", (job.claim_until or 0) + 1)
    request(own_ledger.web3, "evm_mine")
    till.clock.now = float(job.claim_until or 0) + 2
    till.settle_down()
    assert till.job(job_id).refunded == BUDGET - PRICE
    assert own_ledger.account(job.chain_job or 0, worker).due == PRICE
    mined(claims.collect(own_ledger, till.key, job.chain_job or 0, worker))
    assert own_ledger.balance(worker) == PRICE
    assert own_ledger.balance(own_ledger.deployment.contract) == 0


def test_the_digest_on_chain_is_the_publication_s(till: Till) -> None:
    job_id = till.new_job()
    job = till.job(job_id)
    assert escrow.spec_digest(job) == hash_of(job.spec_digest)  # type: ignore[arg-type]
    assert len(escrow.spec_digest(job)) == 32
