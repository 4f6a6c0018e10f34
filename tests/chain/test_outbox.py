"""EARNED reaches the chain exactly once, whatever dies on the way, and the books equal the chain."""

from dataclasses import replace

import pytest
from sqlalchemy import update

from contracts import calls, claims
from contracts.local import fund_gas
from contracts.log_heads import fetch_heads
from contracts.proofs import batch_root
from contracts.transactions import MAX_GAS, execute_call, require_receipt
from gradmarket.market.errors import Conflict
from gradmarket.market.messages import LogHead
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, BatchState, Units
from requester.chain import escrow, mirror, sender, settlement_batches
from requester.chain.chain_context import ChainPolicy
from requester.chain.escrow import that_fit
from requester.features import reconcile
from requester.store.tables import Batch, Earned, JobEvent, Transaction
from tests.chain.chain_fixture import BUDGET, ChainFixture, busy, check, lossy
from tests.lanes import FULL, leave_to_full
from tests.onchain import ETHER, NewKey


def test_earnings_are_settled(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    check(chain_fixture, job_id, worker, 7)
    (row,) = chain_fixture.all(Transaction, Transaction.kind == "settle")
    assert row.gas > 0
    assert chain_fixture.ledger.web3.eth.get_transaction_receipt(row.hash)["blockNumber"] == row.block


@FULL
def test_a_batch_takes_nothing_that_an_audit_took_back_meanwhile(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, _ = busy(chain_fixture, new_key)
    rows = chain_fixture.all(Earned, Earned.batch_id.is_(None))
    with chain_fixture.chain.begin() as work:
        work.session.execute(update(Earned).where(Earned.id == rows[0].id).values(revoked=True))
        batch = Batch(job_id=job_id, number=9, state=BatchState.PREPARED, gradients=7, units=70, created_at=0.0)
        work.add(batch)
    with pytest.raises(Conflict, match="1 of the gradients"), chain_fixture.chain.begin() as work:
        settlement_batches.assign_earned_rows(work, batch, rows)
    assert {row.batch_id for row in chain_fixture.all(Earned, Earned.id.in_([row.id for row in rows]))} == {None}


@FULL
def test_nothing_is_settled_before_it_is_due(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id = chain_fixture.running_job()
    worker = chain_fixture.joins(job_id, new_key())
    chain_fixture.earns(job_id, worker, 3)
    chain_fixture.settle_down()
    assert chain_fixture.all(Batch) == []
    chain_fixture.clock.now += 4.9
    chain_fixture.settle_down()
    assert chain_fixture.all(Batch) == []
    chain_fixture.clock.now += 0.2
    chain_fixture.settle_down()
    assert [batch.gradients for batch in chain_fixture.all(Batch)] == [3]


@pytest.mark.parametrize(
    ("waiting", "units", "age", "ended", "expected"),
    [
        (0, 0, 100.0, True, False),
        (1, 10, 4.0, False, False),
        (1, 10, 5.0, False, True),
        (9, 90, 0.0, False, False),
        (10, 90, 0.0, False, True),
        (1, 100, 0.0, False, True),
        (1, 1, 0.0, True, True),
    ],
)
def test_a_batch_is_due_by_time_size_value_or_end(
    waiting: int, units: int, age: float, ended: bool, expected: bool
) -> None:
    policy = ChainPolicy(settle_every_s=5.0, settle_gradients=10, settle_units=100)
    assert settlement_batches.is_batch_due(waiting, units, 1_000.0, policy, 1_000.0 + age, ended) is expected


@FULL
def test_the_contract_keeps_the_root_of_the_rows(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    check(chain_fixture, job_id, worker, 7)
    rows = chain_fixture.all(Earned, Earned.job_id == job_id)
    first = [row for row in rows if row.batch_id == rows[0].batch_id]
    chain_job = chain_fixture.job(job_id).chain_job or 0
    batch = chain_fixture.all(Batch, Batch.number == 0)[0]
    groups = escrow.groups_of_batch(first, escrow.head_of_batch(batch, chain_job))
    assert chain_fixture.ledger.batch_root(chain_job, 0) == batch_root(groups)
    assert fetch_heads(chain_fixture.ledger, chain_job) == {
        0: LogHead(chain_job, batch.log_size or 0, groups[-1].digests[0])
    }


@FULL
def test_many_small_batches_add_up(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key, 3)
    for _ in range(4):
        chain_fixture.settle_down()
        chain_fixture.earns(job_id, worker, 2)
        chain_fixture.clock.now += 5.0
    check(chain_fixture, job_id, worker, 11)
    assert len(chain_fixture.all(Batch)) == 5


# --- a crash between each two steps: memory is lost, the files stay ----------------------------------------------


@FULL
def test_killed_after_the_batch_is_written_before_it_is_sent(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    assert settlement_batches.settle_due_batches(chain_fixture.chain)
    assert chain_fixture.ledger.job(chain_fixture.job(job_id).chain_job or 0).batches == 0
    chain_fixture.restart()
    check(chain_fixture, job_id, worker, 7)


@FULL
def test_killed_after_sending_before_that_is_written(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    settlement_batches.settle_due_batches(chain_fixture.chain)
    (row,) = chain_fixture.all(Transaction, Transaction.kind == "settle")
    chain_fixture.ledger.web3.eth.send_raw_transaction(row.raw)
    chain_fixture.restart()
    check(chain_fixture, job_id, worker, 7)
    assert len(chain_fixture.all(Transaction, Transaction.kind == "settle")) == 1


@FULL
def test_killed_after_sending_before_the_outcome_is_written(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    settlement_batches.settle_due_batches(chain_fixture.chain)
    assert sender.send_pending_transactions(chain_fixture.chain)
    assert [batch.state for batch in chain_fixture.all(Batch)] == [BatchState.SENT]
    chain_fixture.restart()
    check(chain_fixture, job_id, worker, 7)
    assert len(chain_fixture.all(Transaction, Transaction.kind == "settle")) == 1


@FULL
def test_killed_between_the_copy_of_the_accounts_and_the_outcome(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    settlement_batches.settle_due_batches(chain_fixture.chain)
    sender.send_pending_transactions(chain_fixture.chain)
    mirror.copy_job_from_chain(chain_fixture.chain, job_id, chain_fixture.ledger.height())
    assert chain_fixture.account(job_id, worker).settled == 70
    assert [batch.state for batch in chain_fixture.all(Batch)] == [BatchState.SENT]
    chain_fixture.restart()
    check(chain_fixture, job_id, worker, 7)
    assert chain_fixture.account(job_id, worker).settled == 70


def test_a_lost_answer_is_no_failure(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    chain_fixture.restart(lossy(chain_fixture.ledger, "eth_sendRawTransaction", before=False))
    assert not chain_fixture.chain_worker.step()
    assert chain_fixture.chain_worker.trouble
    check(chain_fixture, job_id, worker, 7)
    assert chain_fixture.chain_worker.trouble == ""
    assert len(chain_fixture.all(Transaction, Transaction.kind == "settle")) == 1


@FULL
def test_a_lost_question_is_asked_again(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    chain_fixture.restart(lossy(chain_fixture.ledger, "eth_sendRawTransaction", before=True))
    chain_fixture.chain_worker.step()
    check(chain_fixture, job_id, worker, 7)


@FULL
@pytest.mark.parametrize("times", [1, 3])
def test_a_lost_receipt_is_asked_for_again(chain_fixture: ChainFixture, new_key: NewKey, times: int) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    chain_fixture.restart(lossy(chain_fixture.ledger, "eth_getTransactionReceipt", before=False, times=times))
    for _ in range(times):
        chain_fixture.chain_worker.step()
    check(chain_fixture, job_id, worker, 7)
    assert len(chain_fixture.all(Transaction, Transaction.kind == "settle")) == 1


# --- the same batch by another way ---------------------------------------------------------------------------------


def settle_behind_its_back(chain_fixture: ChainFixture, job_id: str, number: int, rows: list[Earned]) -> None:
    """The same key settles from elsewhere: a second process, or this one before its database was restored."""
    chain_job = chain_fixture.job(job_id).chain_job or 0
    stored = chain_fixture.all(Batch, Batch.job_id == job_id, Batch.number == number)
    head = escrow.head_of_batch(stored[0], chain_job) if stored else None
    groups = escrow.groups_of_batch(rows, head)
    call = calls.settle_packed(chain_fixture.chain.market, chain_job, number, groups)
    require_receipt(execute_call(chain_fixture.ledger.web3, chain_fixture.key, call))


@FULL
def test_the_same_batch_sent_by_another_transaction_counts_once(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    settlement_batches.settle_due_batches(chain_fixture.chain)
    rows = chain_fixture.all(Earned, Earned.batch_id.is_not(None))
    settle_behind_its_back(chain_fixture, job_id, 0, rows)
    chain_fixture.restart()
    check(chain_fixture, job_id, worker, 7)


@FULL
def test_a_batch_that_only_the_chain_knows_is_adopted(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    rows = chain_fixture.all(Earned, Earned.job_id == job_id)
    settle_behind_its_back(chain_fixture, job_id, 0, rows[2:5])
    chain_fixture.settle_down()
    check(chain_fixture, job_id, worker, 7)
    first, second = chain_fixture.all(Batch)
    assert (first.gradients, second.gradients) == (3, 4)
    assert {row.id for row in chain_fixture.all(Earned, Earned.batch_id == first.id)} == {row.id for row in rows[2:5]}


@FULL
def test_another_batch_under_our_number_displaces_ours(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    settlement_batches.settle_due_batches(chain_fixture.chain)
    rows = chain_fixture.all(Earned, Earned.job_id == job_id)
    settle_behind_its_back(chain_fixture, job_id, 0, rows[:2])
    chain_fixture.restart()
    chain_fixture.settle_down()
    chain_fixture.clock.now += chain_fixture.policy.lost_after_s
    check(chain_fixture, job_id, worker, 7)


@FULL
def test_a_batch_of_what_nobody_earned_stops_the_job_s_settlement_and_no_other(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    other, mate = busy(chain_fixture, new_key)
    job_id, _ = busy(chain_fixture, new_key)
    row = chain_fixture.all(Earned, Earned.job_id == job_id)[0]
    row.digest = bytes(32)
    settle_behind_its_back(chain_fixture, job_id, 0, [row])
    with pytest.raises(reconcile.BooksDiffer):
        reconcile.correct_batches(chain_fixture.chain, job_id)
    chain_fixture.settle_down()
    assert [event.kind for event in chain_fixture.all(JobEvent, JobEvent.kind == "books_differ")] == ["books_differ"]
    assert chain_fixture.ledger.job(chain_fixture.job(job_id).chain_job or 0).batches == 1
    check(chain_fixture, other, mate, 7)


def test_one_gradient_is_in_one_batch(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, _ = busy(chain_fixture, new_key)
    rows = chain_fixture.all(Earned, Earned.job_id == job_id)
    settlement_batches.settle_due_batches(chain_fixture.chain)
    with pytest.raises(Conflict), chain_fixture.chain.begin() as work:
        settlement_batches.assign_earned_rows(work, work.get_one(Batch, 1), rows[:1])


# --- vouchers and batches count the same ----------------------------------------------------------------------------


@pytest.mark.parametrize("redeem_first", leave_to_full([True, False]))
def test_voucher_and_batch_together_pay_what_was_earned(
    chain_fixture: ChainFixture, new_key: NewKey, redeem_first: bool
) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    if not redeem_first:
        chain_fixture.settle_down()
    require_receipt(claims.redeem(chain_fixture.ledger, chain_fixture.key, *chain_fixture.voucher(job_id, worker)))
    check(chain_fixture, job_id, worker, 7)
    assert chain_fixture.ledger.balance(worker) == 70
    assert chain_fixture.account(job_id, worker).withdrawn == 70


@FULL
def test_a_worker_s_withdrawal_is_recorded_without_a_restart(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    chain_fixture.settle_down()
    require_receipt(claims.redeem(chain_fixture.ledger, chain_fixture.key, *chain_fixture.voucher(job_id, worker)))
    assert chain_fixture.account(job_id, worker).withdrawn == 0
    chain_fixture.settle_down()
    assert chain_fixture.account(job_id, worker).withdrawn == 70


# --- sizes -----------------------------------------------------------------------------------------------------------


def earned(number: int, workers: int, price: int = 1) -> Earned:
    return Earned(worker=f"0x{number % workers:040x}", units=price, digest=number.to_bytes(32, "big"))


@pytest.mark.parametrize("workers", [1, 8, 300])
def test_a_batch_stays_within_one_transaction(workers: int) -> None:
    rows = [earned(number, workers) for number in range(5_000)]
    taken = that_fit(rows)
    groups = escrow.groups_of(taken)
    assert rows[: len(taken)] == list(taken)
    assert 100 <= len(taken) < 5_000
    assert sum(28 + 32 * len(group.digests) for group in groups) <= escrow.MAX_BATCH_BYTES
    assert that_fit(rows[:10]) == rows[:10]


@pytest.mark.parametrize("workers", leave_to_full([1, 140]))
def test_a_full_batch_fits_the_chain(chain_fixture: ChainFixture, workers: int) -> None:
    job_id = chain_fixture.running_job()
    rows = [earned(number, workers) for number in range(5_000)]
    groups = [replace(group, worker=Address(f"0x{1 + int(group.worker, 16):040x}")) for group in
              escrow.groups_of(that_fit(rows))]  # fmt: skip
    call = calls.settle_packed(chain_fixture.chain.market, chain_fixture.job(job_id).chain_job or 0, 0, groups)
    assert sender.quote_call(chain_fixture.chain, call).gas < MAX_GAS


@FULL
def test_gas_money_of_the_workers_is_not_the_sender_s(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    check(chain_fixture, job_id, worker, 7)
    assert chain_fixture.ledger.gas_money(worker) == 0
    fund_gas(chain_fixture.ledger.web3, worker, ETHER)
    assert chain_fixture.ledger.balance(address_of(chain_fixture.key)) == 0
    assert chain_fixture.job(job_id).deposited == BUDGET
    assert chain_fixture.ledger.free(chain_fixture.job(job_id).chain_job or 0) <= Units(BUDGET - 70)
