"""A job's deposit goes in once, and the unearned rest comes back to the unit."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from contracts import calls, claims, events
from contracts.ledger import Ledger
from contracts.local import LocalChain, fund_gas
from contracts.rpc import call_json_rpc
from contracts.transactions import require_receipt
from gradmarket.market.rules import payment
from gradmarket.market.terms import Amount, JobState, Units
from gradmarket.market.wire.poll import hash_of
from requester.chain import escrow, funding, outcomes
from requester.chain.chain_context import TransactionKind
from requester.chain.chain_worker import ChainWorker
from requester.features import FEATURES
from requester.features.spending.limits import Spending
from requester.store.tables import Job, JobEvent, Transaction
from tests.chain.chain_differences import list_chain_differences
from tests.chain.chain_fixture import BUDGET, PRICE, ChainFixture, busy, check
from tests.fee_token import market_over_fee_token, takes
from tests.kit.contract_calls import is_signer
from tests.lanes import FULL, leave_to_full
from tests.onchain import ETHER, NewKey, send_call, with_money


def test_a_published_job_is_funded_and_runs(chain_fixture: ChainFixture) -> None:
    job_id = chain_fixture.new_job()
    chain_fixture.settle_down()
    job = chain_fixture.job(job_id)
    chain = chain_fixture.ledger.job(job.chain_job or 0)
    assert (job.state, job.reason, job.deposited) == (JobState.RUNNING, "", BUDGET)
    assert (chain.requester, chain.deposited, chain.unit) == (chain_fixture.chain.sender, BUDGET, 1)
    assert (job.expiry, job.claim_until) == (chain.expiry, chain.claim_until)
    assert chain.claim_until - chain.expiry == chain_fixture.policy.claim_window_s
    assert is_signer(chain_fixture.ledger, job.chain_job or 0, chain_fixture.chain.signer)
    assert [row.kind for row in chain_fixture.all(Transaction)] == ["approve", "open"]
    assert [event.kind for event in chain_fixture.all(JobEvent)] == ["funded"]


@FULL
def test_an_added_budget_is_deposited_and_counts_from_its_deposit(chain_fixture: ChainFixture) -> None:
    job_id = chain_fixture.new_job()
    chain_fixture.settle_down()
    chain_fixture.chain.begin.args[0].kw["info"]["features"] = FEATURES  # type: ignore[attr-defined]
    with chain_fixture.chain.begin() as work:
        work.get_one(Job, job_id).budget += 70
        work.add(Spending(token="alice", job_id=job_id, amount=str(BUDGET), at=1.0))
        work.add(Spending(token="alice", job_id=job_id, amount="70", at=2.0))
    chain_fixture.settle_down()
    job = chain_fixture.job(job_id)
    assert job.deposited == BUDGET + 70
    first, added = chain_fixture.all(Spending)
    assert added.at > 2.0, "it counts from its deposit on"
    assert first.at == 1.0, "it was deposited before"


@FULL
def test_two_jobs_need_one_allowance(chain_fixture: ChainFixture) -> None:
    ids = [chain_fixture.new_job(), chain_fixture.new_job()]
    chain_fixture.settle_down()
    assert len({chain_fixture.job(job_id).chain_job for job_id in ids}) == 2
    assert sorted(row.kind for row in chain_fixture.all(Transaction)) == ["approve", "open", "open"]


def test_the_job_s_own_end_is_the_contract_s_expiry(chain_fixture: ChainFixture) -> None:
    job_id = chain_fixture.new_job(deadlines={"end": "2099-01-01T00:00:00Z"})
    chain_fixture.settle_down()
    assert chain_fixture.job(job_id).expiry == 4070908800


def test_a_job_past_its_end_does_not_start_and_has_the_reason(chain_fixture: ChainFixture) -> None:
    job_id = chain_fixture.new_job(deadlines={"end": "2020-01-01T00:00:00Z"})
    chain_fixture.settle_down()
    job = chain_fixture.job(job_id)
    assert (job.state, job.chain_job) == (JobState.AWAITING_FUNDS, None)
    assert "BadTerms" in job.reason


def test_without_money_it_waits_and_names_the_sum(chain_fixture: ChainFixture) -> None:
    fund_gas(chain_fixture.ledger.web3, chain_fixture.chain.sender, ETHER)
    job_id = chain_fixture.new_job()
    chain_fixture.chain = replace(chain_fixture.chain, grant=None)
    chain_fixture.chain_worker = ChainWorker(chain_fixture.chain)
    chain_fixture.settle_down()
    job = chain_fixture.job(job_id)
    assert job.state == JobState.AWAITING_FUNDS
    assert str(BUDGET) in job.reason
    assert chain_fixture.chain.sender in job.reason
    chain_fixture.restart()
    chain_fixture.settle_down()
    assert chain_fixture.job(job_id).state == JobState.RUNNING


@pytest.mark.parametrize("sent", [False, True])
def test_a_deposit_is_made_once_though_the_opening_is_killed(chain_fixture: ChainFixture, sent: bool) -> None:
    job_id = chain_fixture.new_job()
    chain_fixture.chain_worker.step()
    assert [row.kind for row in chain_fixture.all(Transaction)] == ["approve"]
    assert funding.open_jobs(chain_fixture.chain)
    (row,) = chain_fixture.all(Transaction, Transaction.kind == "open")
    assert row.state == "prepared"
    if sent:
        chain_fixture.ledger.web3.eth.send_raw_transaction(row.raw)
    chain_fixture.restart()
    chain_fixture.settle_down()
    assert chain_fixture.job(job_id).state == JobState.RUNNING
    assert len(chain_fixture.all(Transaction, Transaction.kind == "open")) == 1
    assert chain_fixture.ledger.balance(chain_fixture.chain.sender) == 0


@FULL
def test_a_job_cancelled_while_it_is_opened_gets_its_deposit_back(own_till: ChainFixture, own_ledger: Ledger) -> None:
    own_till.running_job()
    job_id = own_till.new_job()
    assert own_till.chain.grant is not None
    own_till.chain.grant(Amount(BUDGET))
    call_json_rpc(own_ledger.web3, "evm_setAutomine", False)
    own_till.settle_down()
    assert own_till.ledger.balance(own_till.chain.sender) == BUDGET
    own_till.set_job(job_id, state=JobState.CANCELLED)
    call_json_rpc(own_ledger.web3, "evm_mine")
    call_json_rpc(own_ledger.web3, "evm_setAutomine", True)
    own_till.settle_down()
    job = own_till.job(job_id)
    assert (job.state, job.deposited, job.refunded) == (JobState.CANCELLED, BUDGET, BUDGET)
    assert own_ledger.balance(own_till.chain.sender) == BUDGET


def test_a_stranger_s_deposit_beyond_what_a_column_holds_stops_no_job(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    ledger, place = chain_fixture.ledger, chain_fixture.chain.market
    job_id, other = chain_fixture.running_job(), chain_fixture.running_job()
    stranger = with_money(ledger, new_key())
    for chain_job in (chain_fixture.job(one).chain_job or 0 for one in (job_id, other)):
        send_call(ledger, stranger, calls.top_up(place, chain_job, Units(2**63)))
    chain_fixture.set_job(other, state=JobState.FINISHED)
    chain_fixture.settle_down()
    assert chain_fixture.chain_worker.trouble == ""
    job, ended = chain_fixture.job(job_id), chain_fixture.job(other)
    assert (job.deposited, job.refunded) == (payment.MAX_UNITS, 0)
    assert (ended.deposited, ended.refunded) == (payment.MAX_UNITS, payment.MAX_UNITS)
    assert ledger.free(ended.chain_job or 0) == 0
    chain_fixture.set_job(job_id, state=JobState.FINISHED)
    chain_fixture.settle_down()
    assert ledger.balance(chain_fixture.chain.sender) == 2 * (2**63 + BUDGET)


def test_an_owner_s_deposit_beyond_what_a_column_holds_is_the_most_that_a_budget_may_be(
    chain_fixture: ChainFixture,
) -> None:
    job_id = chain_fixture.running_job()
    event = events.opened_job(chain_fixture.ledger, chain_fixture.job(job_id).chain_job or 0)
    with chain_fixture.chain.begin() as work:
        opened = replace(event, deposited=Units(2**64 - 1))
        outcomes.record_escrow_opening(work, work.get_one(Job, job_id), opened, 0.0)
    assert chain_fixture.job(job_id).deposited == payment.MAX_UNITS


def test_an_ended_job_settles_at_once_and_gives_back_all_but_what_is_reserved(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    chain_fixture.settle_down()
    chain_fixture.earns(job_id, worker)
    chain_fixture.set_job(job_id, state=JobState.FINISHED)
    chain_fixture.settle_down()
    job, chain = chain_fixture.job(job_id), chain_fixture.ledger.job(chain_fixture.job(job_id).chain_job or 0)
    assert chain.batches == 2
    assert job.deposited == BUDGET
    assert job.refunded == BUDGET - chain.reserved == chain_fixture.ledger.balance(chain_fixture.chain.sender)
    assert chain_fixture.ledger.free(job.chain_job or 0) == 0
    check(chain_fixture, job_id, worker, 8)


@FULL
def test_a_token_that_pays_nobody_for_a_while_is_named_and_the_rest_comes_back_after(
    own_till: ChainFixture, own_ledger: Ledger, new_key: NewKey
) -> None:
    job_id, token = own_till.running_job(), own_ledger.deployment.token
    sound = own_ledger.web3.eth.get_code(token).to_0x_hex()
    call_json_rpc(own_ledger.web3, "anvil_setCode", token, "0x60006000fd")
    own_till.set_job(job_id, state=JobState.FINISHED)
    for _ in range(2):
        own_till.settle_down()
    refusals = [event for event in own_till.all(JobEvent) if event.kind == "withdraw_refused"]
    assert [event.job_id for event in refusals] == [job_id]
    assert refusals[0].body["reason"]
    call_json_rpc(own_ledger.web3, "anvil_setCode", token, sound)
    own_till.settle_down()
    assert own_till.job(job_id).refunded == BUDGET


@FULL
def test_when_the_workers_have_released_the_rest_comes_back_too(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, key = chain_fixture.running_job(), new_key()
    worker = chain_fixture.joins(job_id, key)
    chain_fixture.settle_down()
    chain_fixture.earns(job_id, worker)
    chain_fixture.settle_down()
    chain_fixture.set_job(job_id, state=JobState.FINISHED)
    chain_fixture.settle_down()
    fund_gas(chain_fixture.ledger.web3, worker, ETHER)
    chain_job = chain_fixture.job(job_id).chain_job or 0
    require_receipt(claims.redeem(chain_fixture.ledger, key, *chain_fixture.voucher(job_id, worker)))
    require_receipt(claims.release(chain_fixture.ledger, key, chain_job, Units(0)))
    chain_fixture.settle_down()
    job = chain_fixture.job(job_id)
    assert (job.deposited, job.refunded) == (BUDGET, BUDGET - PRICE)
    assert chain_fixture.ledger.balance(worker) == PRICE
    assert list_chain_differences(chain_fixture.chain, job_id) == []


@FULL
def test_a_silent_worker_s_unused_reservation_is_refunded_after_the_claim_window(
    own_till: ChainFixture, own_ledger: Ledger, new_key: NewKey
) -> None:
    job_id = own_till.running_job()
    worker = own_till.joins(job_id, new_key())
    own_till.settle_down()
    own_till.earns(job_id, worker)
    own_till.settle_down()
    own_till.set_job(job_id, state=JobState.FINISHED)
    own_till.settle_down()
    job = own_till.job(job_id)
    assert job.refunded < BUDGET - PRICE
    call_json_rpc(own_ledger.web3, "evm_setNextBlockTimestamp", (job.claim_until or 0) + 1)
    call_json_rpc(own_ledger.web3, "evm_mine")
    own_till.clock.now -= 30 * 86_400  # the service's own clock decides nothing of this
    own_till.settle_down()
    assert own_till.job(job_id).refunded == BUDGET - PRICE
    assert own_ledger.account(job.chain_job or 0, worker).unpaid == PRICE
    require_receipt(claims.collect(own_ledger, own_till.key, job.chain_job or 0, worker))
    assert own_ledger.balance(worker) == PRICE
    assert own_ledger.balance(own_ledger.deployment.contract) == 0


def test_the_digest_on_chain_is_the_publication_s(chain_fixture: ChainFixture) -> None:
    job_id = chain_fixture.new_job()
    job = chain_fixture.job(job_id)
    assert escrow.spec_digest(job) == hash_of(job.spec_digest)  # type: ignore[arg-type]
    assert len(escrow.spec_digest(job)) == 32


@FULL
def test_a_service_whose_clock_is_days_ahead_takes_nothing_back_and_settles(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    job_id = chain_fixture.running_job()
    worker = chain_fixture.joins(job_id, new_key())
    chain_fixture.settle_down()
    chain_fixture.clock.now += 30 * 86_400
    chain_fixture.earns(job_id, worker)
    chain_fixture.clock.now += chain_fixture.policy.settle_every_s
    chain_fixture.settle_down()
    job = chain_fixture.job(job_id)
    assert chain_fixture.ledger.account(job.chain_job or 0, worker).settled == PRICE
    chain_fixture.set_job(job_id, state=JobState.FINISHED)
    chain_fixture.settle_down()
    assert TransactionKind.REFUND not in {row.kind for row in chain_fixture.all(Transaction)}


@pytest.mark.parametrize(("top", "lost"), leave_to_full([(1, 0), (0, 1)]))
def test_nothing_is_deposited_in_a_token_that_takes_a_fee(
    own_anvil: LocalChain, till_on: Callable[[Ledger], ChainFixture], top: int, lost: int
) -> None:
    """A fee on top of a payment would come out of other jobs' deposits."""
    ledger = market_over_fee_token(own_anvil.connect())
    takes(ledger, top, lost)
    chain_fixture = till_on(ledger)
    job_id = chain_fixture.new_job()
    chain_fixture.settle_down()
    job = chain_fixture.job(job_id)
    assert (job.state, job.chain_job) == (JobState.AWAITING_FUNDS, None)
    assert f"the token {ledger.deployment.token}" in job.reason
    assert "deploy the market with another one" in job.reason
    assert ledger.balance(ledger.deployment.contract) == 0
    takes(ledger, 0, 0)
    chain_fixture.settle_down()
    assert chain_fixture.job(job_id).state == JobState.RUNNING
