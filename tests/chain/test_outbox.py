"""EARNED reaches the chain exactly once, whatever dies on the way, and the books equal the chain."""

from dataclasses import replace

import pytest
from onchain import ETHER, NewKey
from sqlalchemy import update
from till import BUDGET, Till, busy, check, lossy

from gradmarket.contracts import calls, claims
from gradmarket.contracts.local import fund_gas
from gradmarket.contracts.proofs import batch_root
from gradmarket.contracts.transactions import MAX_GAS, execute, mined
from gradmarket.market.errors import Conflict
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, BatchState, Units
from gradmarket.requester.chain import escrow, outbox, reconcile, sender
from gradmarket.requester.chain.desk import Policy
from gradmarket.requester.chain.escrow import that_fit
from gradmarket.requester.store.tables import Batch, Earned, Event, Transaction


def test_what_was_earned_is_settled(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    check(till, job_id, worker, 7)
    (row,) = till.all(Transaction, Transaction.kind == "settle")
    assert row.gas > 0
    assert till.ledger.web3.eth.get_transaction_receipt(row.hash)["blockNumber"] == row.block


def test_a_batch_takes_nothing_that_an_audit_took_back_meanwhile(till: Till, new_key: NewKey) -> None:
    job_id, _ = busy(till, new_key)
    rows = till.all(Earned, Earned.batch_id.is_(None))
    with till.desk.begin() as session:
        session.execute(update(Earned).where(Earned.id == rows[0].id).values(revoked=True))
        batch = Batch(job_id=job_id, number=9, state=BatchState.PREPARED, gradients=7, units=70, created_at=0.0)
        session.add(batch)
    with pytest.raises(Conflict, match="1 of the gradients"), till.desk.begin() as session:
        outbox.take(session, batch, rows)
    assert {row.batch_id for row in till.all(Earned, Earned.id.in_([row.id for row in rows]))} == {None}


def test_nothing_is_settled_before_it_is_due(till: Till, new_key: NewKey) -> None:
    job_id = till.running_job()
    worker = till.joins(job_id, new_key())
    till.earns(job_id, worker, 3)
    till.settle_down()
    assert till.all(Batch) == []
    till.clock.now += 4.9
    till.settle_down()
    assert till.all(Batch) == []
    till.clock.now += 0.2
    till.settle_down()
    assert [batch.gradients for batch in till.all(Batch)] == [3]


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
    policy = Policy(settle_every_s=5.0, settle_gradients=10, settle_units=100)
    assert outbox.due(waiting, units, 1_000.0, policy, 1_000.0 + age, ended) is expected


def test_the_contract_keeps_the_root_of_the_rows(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    check(till, job_id, worker, 7)
    rows = till.all(Earned, Earned.job_id == job_id)
    first = [row for row in rows if row.batch_id == rows[0].batch_id]
    chain_job = till.job(job_id).chain_job or 0
    assert till.ledger.batch_root(chain_job, 0) == batch_root(escrow.groups_of(first))


def test_many_small_batches_add_up(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key, 3)
    for _ in range(4):
        till.settle_down()
        till.earns(job_id, worker, 2)
        till.clock.now += 5.0
    check(till, job_id, worker, 11)
    assert len(till.all(Batch)) == 5


# --- a crash between each two steps: what is in memory is lost, the files stay -----------------------------------


def test_killed_after_the_batch_is_written_before_it_is_sent(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    assert outbox.step(till.desk)
    assert till.ledger.job(till.job(job_id).chain_job or 0).batches == 0
    till.restart()
    check(till, job_id, worker, 7)


def test_killed_after_sending_before_that_is_written(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    outbox.step(till.desk)
    (row,) = till.all(Transaction, Transaction.kind == "settle")
    till.ledger.web3.eth.send_raw_transaction(row.raw)
    till.restart()
    check(till, job_id, worker, 7)
    assert len(till.all(Transaction, Transaction.kind == "settle")) == 1


def test_killed_after_sending_before_the_outcome_is_written(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    outbox.step(till.desk)
    assert sender.push(till.desk)
    assert [batch.state for batch in till.all(Batch)] == [BatchState.SENT]
    till.restart()
    check(till, job_id, worker, 7)
    assert len(till.all(Transaction, Transaction.kind == "settle")) == 1


def test_killed_before_the_accounts_are_copied(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    outbox.step(till.desk)
    sender.push(till.desk)
    sender.follow(till.desk)
    assert till.account(job_id, worker).settled == 0
    till.restart()
    check(till, job_id, worker, 7)
    assert till.account(job_id, worker).settled == 70


def test_a_lost_answer_is_no_failure(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    till.restart(lossy(till.ledger, "eth_sendRawTransaction", before=False))
    assert not till.office.step()
    assert till.office.trouble
    check(till, job_id, worker, 7)
    assert till.office.trouble == ""
    assert len(till.all(Transaction, Transaction.kind == "settle")) == 1


def test_a_lost_question_is_asked_again(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    till.restart(lossy(till.ledger, "eth_sendRawTransaction", before=True))
    till.office.step()
    check(till, job_id, worker, 7)


@pytest.mark.parametrize("times", [1, 3])
def test_a_lost_receipt_is_asked_for_again(till: Till, new_key: NewKey, times: int) -> None:
    job_id, worker = busy(till, new_key)
    till.restart(lossy(till.ledger, "eth_getTransactionReceipt", before=False, times=times))
    for _ in range(times):
        till.office.step()
    check(till, job_id, worker, 7)
    assert len(till.all(Transaction, Transaction.kind == "settle")) == 1


# --- the same batch by another way ---------------------------------------------------------------------------------


def settle_behind_its_back(till: Till, job_id: str, number: int, rows: list[Earned]) -> None:
    """The same key settles from elsewhere: a second process, or this one before its database was restored."""
    chain_job = till.job(job_id).chain_job or 0
    call = calls.settle_packed(till.desk.market, chain_job, number, escrow.groups_of(rows))
    mined(execute(till.ledger.web3, till.key, call))


def test_the_same_batch_sent_by_another_transaction_counts_once(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    outbox.step(till.desk)
    rows = till.all(Earned, Earned.batch_id.is_not(None))
    settle_behind_its_back(till, job_id, 0, rows)
    till.restart()
    check(till, job_id, worker, 7)


def test_a_batch_that_only_the_chain_knows_is_adopted(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    rows = till.all(Earned, Earned.job_id == job_id)
    settle_behind_its_back(till, job_id, 0, rows[2:5])
    till.settle_down()
    check(till, job_id, worker, 7)
    first, second = till.all(Batch)
    assert (first.gradients, second.gradients) == (3, 4)
    assert {row.id for row in till.all(Earned, Earned.batch_id == first.id)} == {row.id for row in rows[2:5]}


def test_another_batch_under_our_number_displaces_ours(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    outbox.step(till.desk)
    rows = till.all(Earned, Earned.job_id == job_id)
    settle_behind_its_back(till, job_id, 0, rows[:2])
    till.restart()
    till.settle_down()
    till.clock.now += till.policy.lost_after_s
    check(till, job_id, worker, 7)


def test_a_batch_of_what_nobody_earned_stops_the_job_s_settlement_and_no_other(till: Till, new_key: NewKey) -> None:
    other, mate = busy(till, new_key)
    job_id, _ = busy(till, new_key)
    row = till.all(Earned, Earned.job_id == job_id)[0]
    row.digest = bytes(32)
    settle_behind_its_back(till, job_id, 0, [row])
    with pytest.raises(reconcile.BooksDiffer):
        reconcile.batches(till.desk, job_id)
    till.settle_down()
    assert [event.kind for event in till.all(Event, Event.kind == "books_differ")] == ["books_differ"]
    assert till.ledger.job(till.job(job_id).chain_job or 0).batches == 1
    check(till, other, mate, 7)


def test_one_gradient_is_in_one_batch(till: Till, new_key: NewKey) -> None:
    job_id, _ = busy(till, new_key)
    rows = till.all(Earned, Earned.job_id == job_id)
    outbox.step(till.desk)
    with pytest.raises(Conflict), till.desk.begin() as session:
        outbox.take(session, session.get_one(Batch, 1), rows[:1])


# --- vouchers and batches count the same ----------------------------------------------------------------------------


@pytest.mark.parametrize("redeem_first", [True, False])
def test_voucher_and_batch_together_pay_what_was_earned(till: Till, new_key: NewKey, redeem_first: bool) -> None:
    job_id, worker = busy(till, new_key)
    if not redeem_first:
        till.settle_down()
    mined(claims.redeem(till.ledger, till.key, *till.voucher(job_id, worker)))
    check(till, job_id, worker, 7)
    assert till.ledger.balance(worker) == 70
    assert till.account(job_id, worker).withdrawn == 70


def test_what_a_worker_takes_is_seen_without_a_restart(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    till.settle_down()
    mined(claims.redeem(till.ledger, till.key, *till.voucher(job_id, worker)))
    assert till.account(job_id, worker).withdrawn == 0
    till.settle_down()
    assert till.account(job_id, worker).withdrawn == 70


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


@pytest.mark.parametrize("workers", [1, 140])
def test_a_full_batch_fits_the_chain(till: Till, workers: int) -> None:
    job_id = till.running_job()
    rows = [earned(number, workers) for number in range(5_000)]
    groups = [replace(group, worker=Address(f"0x{1 + int(group.worker, 16):040x}")) for group in
              escrow.groups_of(that_fit(rows))]  # fmt: skip
    call = calls.settle_packed(till.desk.market, till.job(job_id).chain_job or 0, 0, groups)
    assert sender.quote(till.desk, call).gas < MAX_GAS


def test_gas_money_of_the_workers_is_not_the_sender_s(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    check(till, job_id, worker, 7)
    assert till.ledger.gas_money(worker) == 0
    fund_gas(till.ledger.web3, worker, ETHER)
    assert till.ledger.balance(address_of(till.key)) == 0
    assert till.job(job_id).deposited == BUDGET
    assert till.ledger.free(till.job(job_id).chain_job or 0) <= Units(BUDGET - 70)
