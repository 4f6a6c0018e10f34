"""One sender: every nonce is used once, stuck transactions are replaced, gaps are filled, and one process works."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from onchain import NewKey
from till import Till, busy, check

from gradmarket.contracts import calls
from gradmarket.contracts.errors import ContractRefused
from gradmarket.contracts.ledger import Ledger
from gradmarket.contracts.processes import known_ended, own_name
from gradmarket.contracts.rpc import request
from gradmarket.contracts.transactions import execute, fees, mined, sign
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address
from gradmarket.requester.chain import duty, outbox, sender
from gradmarket.requester.chain.desk import Kind, TransactionState
from gradmarket.requester.chain.office import Office
from gradmarket.requester.store.tables import Transaction

SOMEONE = Address("0x" + "5e" * 20)


def post(till: Till, kind: Kind = Kind.APPROVE) -> Transaction:
    """A transaction that is always possible."""
    quoted = sender.quote(till.desk, calls.set_payout(till.desk.market, SOMEONE))
    with till.desk.begin() as session:
        return sender.post(till.desk, session, quoted, kind, None)


@pytest.fixture
def rich(till: Till) -> Till:
    assert till.desk.grant is not None
    till.desk.grant(1)  # type: ignore[arg-type]
    return till


def test_nonces_follow_each_other_before_anything_is_sent(rich: Till) -> None:
    rows = [post(rich) for _ in range(3)]
    assert [row.nonce for row in rows] == [0, 1, 2]
    assert rich.ledger.nonce(rich.desk.sender) == 0
    sender.push(rich.desk)
    assert sender.follow(rich.desk) == {""}
    assert {row.state for row in rich.all(Transaction)} == {TransactionState.MINED}
    assert rich.ledger.nonce(rich.desk.sender) == 3


def test_nonces_start_where_the_chain_is(rich: Till) -> None:
    mined(execute(rich.ledger.web3, rich.key, calls.set_payout(rich.desk.market, SOMEONE)))
    assert post(rich).nonce == 1


def test_what_the_contract_would_refuse_takes_no_nonce(rich: Till) -> None:
    with pytest.raises(ContractRefused):
        sender.quote(rich.desk, calls.refund(rich.desk.market, 10**9))
    assert rich.all(Transaction) == []


def test_a_gap_is_filled_so_that_what_follows_is_mined(rich: Till) -> None:
    first, second = post(rich), post(rich)
    with rich.desk.begin() as session:
        session.delete(session.get_one(Transaction, first.id))
    sender.push(rich.desk)
    sender.follow(rich.desk)
    assert [(row.nonce, row.kind, row.state) for row in sorted(rich.all(Transaction), key=lambda row: row.nonce)] == [
        (0, Kind.FILL, TransactionState.MINED),
        (1, Kind.APPROVE, TransactionState.MINED),
    ]
    assert second.nonce == 1


def test_a_stuck_transaction_is_replaced_and_counts_once(
    own_ledger: Ledger, till_on: Callable[[Ledger], Till], new_key: NewKey
) -> None:
    till = till_on(own_ledger)
    job_id, worker = busy(till, new_key)
    request(own_ledger.web3, "evm_setAutomine", False)
    till.settle_down()
    (before,) = till.all(Transaction, Transaction.kind == Kind.SETTLE)
    till.clock.now += till.policy.replace_after_s
    till.settle_down()
    (after,) = till.all(Transaction, Transaction.kind == Kind.SETTLE)
    assert after.hash != before.hash
    assert after.nonce == before.nonce
    request(own_ledger.web3, "evm_mine")
    request(own_ledger.web3, "evm_setAutomine", True)
    check(till, job_id, worker, 7)


def test_the_first_attempt_may_be_the_one_that_is_mined(
    own_ledger: Ledger, till_on: Callable[[Ledger], Till], new_key: NewKey
) -> None:
    till = till_on(own_ledger)
    job_id, worker = busy(till, new_key)
    request(own_ledger.web3, "evm_setAutomine", False)
    till.settle_down()
    (first,) = till.all(Transaction, Transaction.kind == Kind.SETTLE)
    for _ in range(2):
        till.clock.now += till.policy.replace_after_s * 2
        till.settle_down()
    request(own_ledger.web3, "anvil_dropAllTransactions")
    own_ledger.web3.eth.send_raw_transaction(first.raw)
    request(own_ledger.web3, "evm_mine")
    request(own_ledger.web3, "evm_setAutomine", True)
    check(till, job_id, worker, 7)
    (row,) = till.all(Transaction, Transaction.kind == Kind.SETTLE)
    assert row.hash == first.hash


def test_a_nonce_that_another_used_is_given_up_late_and_its_purpose_served(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    till.office.step()
    till.earns(job_id, worker, 2)
    till.clock.now += till.policy.settle_every_s
    assert outbox.step(till.desk)
    mined(execute(till.ledger.web3, till.key, calls.set_payout(till.desk.market, SOMEONE)))
    till.settle_down()
    assert till.all(Transaction, Transaction.state == TransactionState.LOST) == []
    till.clock.now += till.policy.lost_after_s
    check(till, job_id, worker, 9)
    assert len(till.all(Transaction, Transaction.state == TransactionState.LOST)) == 1


def test_a_reverted_batch_is_sent_again_when_it_can_be(
    own_ledger: Ledger, till_on: Callable[[Ledger], Till], new_key: NewKey
) -> None:
    """It runs out of gas, say: its gradients stay in the batch, and the batch gets another transaction."""
    till = till_on(own_ledger)
    job_id, worker = busy(till, new_key)
    request(own_ledger.web3, "evm_setAutomine", False)
    till.settle_down()
    (row,) = till.all(Transaction, Transaction.kind == Kind.SETTLE)
    request(own_ledger.web3, "anvil_dropAllTransactions")
    starved = sign(
        till.key,
        own_ledger.deployment.chain_id,
        row.nonce,
        calls.Call(till.desk.market, row.data),
        60_000,
        fees(own_ledger.web3),
    )
    with till.desk.begin() as session:
        found = session.get_one(Transaction, row.id)
        found.raw, found.hash = starved.raw, starved.hash
    own_ledger.web3.eth.send_raw_transaction(starved.raw)
    request(own_ledger.web3, "evm_mine")
    request(own_ledger.web3, "evm_setAutomine", True)
    check(till, job_id, worker, 7)
    states = [each.state for each in till.all(Transaction, Transaction.kind == Kind.SETTLE)]
    assert states == [TransactionState.REVERTED, TransactionState.MINED]


def test_no_gas_money_is_told_and_ends(own_ledger: Ledger, till_on: Callable[[Ledger], Till], new_key: NewKey) -> None:
    till = till_on(own_ledger)
    job_id, worker = busy(till, new_key)
    wealth = own_ledger.gas_money(till.desk.sender)
    request(own_ledger.web3, "anvil_setBalance", till.desk.sender, "0x0")
    till.office.step()
    assert "nsufficient funds" in till.office.trouble
    request(own_ledger.web3, "anvil_setBalance", till.desk.sender, hex(wealth))
    till.clock.now += till.policy.resend_after_s
    check(till, job_id, worker, 7)
    assert till.office.trouble == ""


def test_one_process_at_a_time_has_the_duty(till: Till) -> None:
    mate = replace(till.desk, holder="a mate")
    assert duty.hold(till.desk)
    assert not duty.hold(mate)
    assert not Office(mate).step()
    till.clock.now += till.policy.duty_s / 2 + 1
    assert duty.hold(till.desk)
    assert not duty.hold(mate)
    till.clock.now += till.policy.duty_s + 1
    assert duty.hold(mate)
    assert not duty.hold(till.desk)
    duty.leave(mate)
    assert duty.hold(till.desk)


def test_a_dead_process_holds_no_duty(till: Till) -> None:
    """A service that was killed goes on at once when it is started again."""
    say = "from gradmarket.contracts.processes import own_name; print(own_name())"
    dead = subprocess.run([sys.executable, "-c", say], capture_output=True, text=True, check=True).stdout.strip()
    assert known_ended(dead)
    assert duty.hold(replace(till.desk, holder=dead))
    assert duty.hold(till.desk)


def test_a_process_of_another_machine_may_live(till: Till) -> None:
    _, space, *_ = own_name().split(" ")
    foreign = f"another-boot {space} 999999999 1"
    assert not any(known_ended(name) for name in (foreign, own_name(), "no name of a process", ""))
    assert known_ended(own_name().rpartition(" ")[0] + " 1")
    assert duty.hold(replace(till.desk, holder=foreign))
    assert not duty.hold(till.desk)


def test_another_sender_has_a_duty_of_its_own(till: Till, new_key: NewKey) -> None:
    other = replace(till.desk, key=new_key())
    assert duty.hold(till.desk)
    assert duty.hold(other)
    assert other.sender != address_of(till.key)
