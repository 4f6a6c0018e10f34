"""One sender: every nonce is used once, stuck transactions are replaced, gaps are filled, and one process works."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from hexbytes import HexBytes

from contracts import calls, transactions
from contracts.gas_price import GWEI, GasPrice
from contracts.ledger import Ledger
from contracts.processes import known_ended, own_name
from contracts.rpc import call_json_rpc
from contracts.transaction_types import Fees
from contracts.transactions import execute_call, fetch_fees, require_receipt, sign_call
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, Amount
from gradmarket.network.chain_errors import ContractRefused
from requester.chain import chain_worker, sender, settlement_batches
from requester.chain.chain_context import TransactionKind, TransactionState
from requester.chain.chain_worker import ChainWorker
from requester.features.explanations import chain_trouble
from requester.features.reconcile import undo_outcome
from requester.store.tables import Transaction
from tests.chain.chain_fixture import ChainFixture, busy, check, wait_until_mined
from tests.lanes import FULL
from tests.onchain import NewKey
from tests.patience import wait_until

SOMEONE = Address("0x" + "5e" * 20)


def post(chain_fixture: ChainFixture, kind: TransactionKind = TransactionKind.APPROVE) -> Transaction:
    """A transaction that is always possible."""
    quoted = sender.quote_call(chain_fixture.chain, calls.set_payout(chain_fixture.chain.market, SOMEONE))
    with chain_fixture.chain.begin() as work:
        return sender.store_transaction(chain_fixture.chain, work, quoted, kind, None)


def rich_on(chain_fixture: ChainFixture) -> ChainFixture:
    """The fixture, with gas."""
    assert chain_fixture.chain.grant is not None
    chain_fixture.chain.grant(Amount(1))
    return chain_fixture


@pytest.fixture
def rich(chain_fixture: ChainFixture) -> ChainFixture:
    return rich_on(chain_fixture)


def test_nonces_follow_each_other_before_anything_is_sent(rich: ChainFixture) -> None:
    rows = [post(rich) for _ in range(3)]
    assert [row.nonce for row in rows] == [0, 1, 2]
    assert rich.ledger.nonce(rich.chain.sender) == 0
    sender.send_pending_transactions(rich.chain)
    touched = set[str]()
    wait_until(
        lambda: {row.state for row in rich.all(Transaction)} == {TransactionState.MINED},
        meanwhile=lambda: touched.update(sender.record_known_outcomes(rich.chain)),
    )
    assert touched == {""}
    assert rich.ledger.nonce(rich.chain.sender) == 3


def test_nonces_start_where_the_chain_is(rich: ChainFixture) -> None:
    require_receipt(execute_call(rich.ledger.web3, rich.key, calls.set_payout(rich.chain.market, SOMEONE)))
    assert post(rich).nonce == 1


def test_a_call_that_the_contract_would_refuse_takes_no_nonce(rich: ChainFixture) -> None:
    with pytest.raises(ContractRefused):
        sender.quote_call(rich.chain, calls.refund(rich.chain.market, 10**9))
    assert rich.all(Transaction) == []


def test_a_gap_is_filled_so_that_what_follows_is_mined(rich: ChainFixture) -> None:
    first, second = post(rich), post(rich)
    with rich.chain.begin() as work:
        work.session.delete(work.get_one(Transaction, first.id))
    sender.send_pending_transactions(rich.chain)
    wait_until_mined(rich.ledger)
    sender.record_known_outcomes(rich.chain)
    assert [(row.nonce, row.kind, row.state) for row in sorted(rich.all(Transaction), key=lambda row: row.nonce)] == [
        (0, TransactionKind.FILL, TransactionState.MINED),
        (1, TransactionKind.APPROVE, TransactionState.MINED),
    ]
    assert second.nonce == 1


def test_a_stuck_transaction_is_replaced_and_counts_once(
    own_till: ChainFixture, own_ledger: Ledger, new_key: NewKey
) -> None:
    job_id, worker = busy(own_till, new_key)
    call_json_rpc(own_ledger.web3, "evm_setAutomine", False)
    own_till.settle_down()
    (before,) = own_till.all(Transaction, Transaction.kind == TransactionKind.SETTLE)
    own_till.clock.now += own_till.policy.replace_after_s
    own_till.settle_down()
    (after,) = own_till.all(Transaction, Transaction.kind == TransactionKind.SETTLE)
    assert after.hash != before.hash
    assert after.nonce == before.nonce
    call_json_rpc(own_ledger.web3, "evm_mine")
    call_json_rpc(own_ledger.web3, "evm_setAutomine", True)
    check(own_till, job_id, worker, 7)


@FULL
def test_the_first_attempt_may_be_the_one_that_is_mined(
    own_till: ChainFixture, own_ledger: Ledger, new_key: NewKey
) -> None:
    job_id, worker = busy(own_till, new_key)
    call_json_rpc(own_ledger.web3, "evm_setAutomine", False)
    own_till.settle_down()
    (first,) = own_till.all(Transaction, Transaction.kind == TransactionKind.SETTLE)
    for _ in range(2):
        own_till.clock.now += own_till.policy.replace_after_s * 2
        own_till.settle_down()
    call_json_rpc(own_ledger.web3, "anvil_dropAllTransactions")
    own_ledger.web3.eth.send_raw_transaction(first.raw)
    call_json_rpc(own_ledger.web3, "evm_mine")
    call_json_rpc(own_ledger.web3, "evm_setAutomine", True)
    check(own_till, job_id, worker, 7)
    (row,) = own_till.all(Transaction, Transaction.kind == TransactionKind.SETTLE)
    assert row.hash == first.hash


@pytest.mark.parametrize("mined_one", [0, 1, 2])
@pytest.mark.parametrize("replaced_since", [False, True])
def test_any_attempt_of_an_earlier_release_may_be_the_mined_one(
    own_ledger: Ledger, till_on: Callable[[Ledger], ChainFixture], mined_one: int, replaced_since: bool
) -> None:
    """It kept no attempts: each doubled both fees, the first tip was odd."""
    chain_fixture = rich_on(till_on(own_ledger))
    call_json_rpc(own_ledger.web3, "evm_setAutomine", False)
    row, odd = post(chain_fixture), Fees(8 * GWEI + 1, GWEI + 1)
    call = calls.Call(Address(row.to), row.data)
    attempts = [
        sign_call(chain_fixture.key, own_ledger.deployment.chain_id, row.nonce, call, 90_000, price)
        for price in (odd, Fees(2 * odd.most, 2 * odd.tip), Fees(4 * odd.most, 4 * odd.tip))
    ]
    with chain_fixture.chain.begin() as work:
        old = work.get_one(Transaction, row.id)
        old.raw, old.hash, old.offer, old.replaced = attempts[-1].raw, attempts[-1].hash, {}, []
        old.state, old.sent_at = TransactionState.SENT, chain_fixture.clock()
    if replaced_since:
        chain_fixture.clock.now += chain_fixture.policy.replace_after_s * 4
        sender.send_pending_transactions(chain_fixture.chain)
        assert [len(each.replaced) for each in chain_fixture.all(Transaction)] == [3]
        call_json_rpc(own_ledger.web3, "anvil_dropAllTransactions")
    own_ledger.web3.eth.send_raw_transaction(attempts[mined_one].raw)
    call_json_rpc(own_ledger.web3, "evm_mine")
    sender.record_known_outcomes(chain_fixture.chain)
    (after,) = chain_fixture.all(Transaction)
    assert (after.state, after.hash) == (TransactionState.MINED, attempts[mined_one].hash)


def test_where_the_chain_forgets_the_attempt_that_it_mined_another_may_follow(
    own_ledger: Ledger, till_on: Callable[[Ledger], ChainFixture]
) -> None:
    chain_fixture = rich_on(till_on(own_ledger))
    call_json_rpc(own_ledger.web3, "evm_setAutomine", False)
    first = post(chain_fixture)
    sender.send_pending_transactions(chain_fixture.chain)
    chain_fixture.clock.now += chain_fixture.policy.replace_after_s
    sender.send_pending_transactions(chain_fixture.chain)
    (second,) = chain_fixture.all(Transaction)
    for mined_one in (first, second):
        before = call_json_rpc(own_ledger.web3, "evm_snapshot")
        call_json_rpc(own_ledger.web3, "anvil_dropAllTransactions")
        own_ledger.web3.eth.send_raw_transaction(mined_one.raw or b"")
        call_json_rpc(own_ledger.web3, "evm_mine")
        sender.record_known_outcomes(chain_fixture.chain)
        (after,) = chain_fixture.all(Transaction)
        assert (after.state, after.hash) == (TransactionState.MINED, mined_one.hash)
        call_json_rpc(own_ledger.web3, "evm_revert", before)
        with chain_fixture.chain.begin() as work:
            undo_outcome(work, work.get_one(Transaction, first.id))


def base_fee(ledger: Ledger, gwei: float) -> None:
    """Of the newest block, and so of the next ones."""
    call_json_rpc(ledger.web3, "anvil_setNextBlockBaseFeePerGas", hex(int(gwei * GWEI)))
    call_json_rpc(ledger.web3, "evm_mine")


def test_where_the_base_fee_is_forty_times_as_high_a_transaction_is_replaced_at_once(
    own_ledger: Ledger, till_on: Callable[[Ledger], ChainFixture]
) -> None:
    chain_fixture = rich_on(till_on(own_ledger))
    base_fee(own_ledger, 1)
    call_json_rpc(own_ledger.web3, "evm_setAutomine", False)
    before = post(chain_fixture)
    sender.send_pending_transactions(chain_fixture.chain)
    base_fee(own_ledger, 40)
    chain_fixture.clock.now += chain_fixture.policy.resend_after_s
    sender.send_pending_transactions(chain_fixture.chain)
    (after,) = chain_fixture.all(Transaction)
    assert (after.nonce, after.replaced) == (before.nonce, [before.hash])
    assert int(after.offer["most"]) >= 80 * GWEI
    assert int(after.offer["tip"]) < 2 * int(before.offer["tip"])
    call_json_rpc(own_ledger.web3, "evm_mine")
    sender.record_known_outcomes(chain_fixture.chain)
    assert [row.state for row in chain_fixture.all(Transaction)] == [TransactionState.MINED]


def test_a_minable_transaction_is_not_replaced_before_it_is_overdue(
    own_ledger: Ledger, till_on: Callable[[Ledger], ChainFixture]
) -> None:
    chain_fixture = rich_on(till_on(own_ledger))
    call_json_rpc(own_ledger.web3, "evm_setAutomine", False)
    before = post(chain_fixture)
    sender.send_pending_transactions(chain_fixture.chain)
    chain_fixture.clock.now += chain_fixture.policy.resend_after_s
    sender.send_pending_transactions(chain_fixture.chain)
    assert [row.hash for row in chain_fixture.all(Transaction)] == [before.hash]


@FULL
def test_the_chain_worker_waits_for_gas_below_the_owner_s_ceiling_with_its_reason(
    own_till: ChainFixture, own_ledger: Ledger, new_key: NewKey
) -> None:
    job_id, worker = busy(own_till, new_key)
    own_till.settle_down()
    sent = own_ledger.nonce(own_till.chain.sender)
    own_till.chain = replace(own_till.chain, policy=replace(own_till.policy, max_fee=50 * GWEI))
    own_till.chain_worker = ChainWorker(own_till.chain)
    own_till.earns(job_id, worker, 2)
    own_till.clock.now += own_till.policy.settle_every_s
    base_fee(own_ledger, 120)
    own_till.chain_worker.step()
    assert "waits: gas is 12" in own_till.chain_worker.trouble
    assert "ceiling 50 gwei" in own_till.chain_worker.trouble
    with own_till.chain.reading() as reader:
        assert chain_trouble(reader) == own_till.chain_worker.trouble, "no word more: the chain can be used"
    assert own_ledger.nonce(own_till.chain.sender) == sent
    base_fee(own_ledger, 1)
    check(own_till, job_id, worker, 9)
    assert own_till.chain_worker.trouble == ""


def test_the_replacement_of_a_sent_transaction_waits_for_the_ceiling_too(
    own_ledger: Ledger, till_on: Callable[[Ledger], ChainFixture]
) -> None:
    chain_fixture = rich_on(till_on(own_ledger))
    chain = replace(chain_fixture.chain, policy=replace(chain_fixture.policy, max_fee=50 * GWEI))
    base_fee(own_ledger, 1)
    call_json_rpc(own_ledger.web3, "evm_setAutomine", False)
    before = post(chain_fixture)
    sender.send_pending_transactions(chain)
    base_fee(own_ledger, 120)
    chain_fixture.clock.now += chain_fixture.policy.resend_after_s
    sender.send_pending_transactions(chain)
    assert "waits: gas is 12" in sender.find_refusal(chain)
    assert [row.hash for row in chain_fixture.all(Transaction)] == [before.hash]


def test_on_a_chain_without_a_base_fee_the_service_sends_legacy_transactions(
    own_ledger: Ledger, till_on: Callable[[Ledger], ChainFixture], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This chain takes them as well."""
    chain_fixture = rich_on(till_on(own_ledger))
    for module in (transactions, sender):
        monkeypatch.setattr(module, "gas_price", lambda _web3: GasPrice(None, 3 * GWEI))
    call_json_rpc(own_ledger.web3, "evm_setAutomine", False)
    post(chain_fixture)
    sender.send_pending_transactions(chain_fixture.chain)
    chain_fixture.clock.now += chain_fixture.policy.replace_after_s
    sender.send_pending_transactions(chain_fixture.chain)
    call_json_rpc(own_ledger.web3, "evm_mine")
    sender.record_known_outcomes(chain_fixture.chain)
    (row,) = chain_fixture.all(Transaction)
    assert (row.state, len(row.replaced), row.offer["legacy"]) == (TransactionState.MINED, 1, True)
    assert int(own_ledger.web3.eth.get_transaction(HexBytes(row.hash or ""))["type"]) == 0


def test_a_nonce_that_another_used_is_given_up_late_and_its_purpose_served(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    chain_fixture.chain_worker.step()
    chain_fixture.earns(job_id, worker, 2)
    chain_fixture.clock.now += chain_fixture.policy.settle_every_s
    assert settlement_batches.settle_due_batches(chain_fixture.chain)
    require_receipt(
        execute_call(
            chain_fixture.ledger.web3, chain_fixture.key, calls.set_payout(chain_fixture.chain.market, SOMEONE)
        )
    )
    chain_fixture.settle_down()
    assert chain_fixture.all(Transaction, Transaction.state == TransactionState.LOST) == []
    chain_fixture.clock.now += chain_fixture.policy.lost_after_s
    check(chain_fixture, job_id, worker, 9)
    assert len(chain_fixture.all(Transaction, Transaction.state == TransactionState.LOST)) == 1


@FULL
def test_a_reverted_batch_is_sent_again_when_it_can_be(
    own_till: ChainFixture, own_ledger: Ledger, new_key: NewKey
) -> None:
    """It may run out of gas: its gradients stay in the batch, and the batch gets another transaction."""
    job_id, worker = busy(own_till, new_key)
    call_json_rpc(own_ledger.web3, "evm_setAutomine", False)
    own_till.settle_down()
    (row,) = own_till.all(Transaction, Transaction.kind == TransactionKind.SETTLE)
    call_json_rpc(own_ledger.web3, "anvil_dropAllTransactions")
    starved = sign_call(
        own_till.key,
        own_ledger.deployment.chain_id,
        row.nonce,
        calls.Call(own_till.chain.market, row.data),
        60_000,
        fetch_fees(own_ledger.web3),
    )
    with own_till.chain.begin() as work:
        found = work.get_one(Transaction, row.id)
        found.raw, found.hash = starved.raw, starved.hash
    own_ledger.web3.eth.send_raw_transaction(starved.raw)
    call_json_rpc(own_ledger.web3, "evm_mine")
    call_json_rpc(own_ledger.web3, "evm_setAutomine", True)
    check(own_till, job_id, worker, 7)
    states = [each.state for each in own_till.all(Transaction, Transaction.kind == TransactionKind.SETTLE)]
    assert states == [TransactionState.REVERTED, TransactionState.MINED]


@FULL
def test_missing_gas_money_is_the_trouble_until_it_arrives(
    own_till: ChainFixture, own_ledger: Ledger, new_key: NewKey
) -> None:
    job_id, worker = busy(own_till, new_key)
    wealth = own_ledger.gas_money(own_till.chain.sender)
    call_json_rpc(own_ledger.web3, "anvil_setBalance", own_till.chain.sender, "0x0")
    own_till.chain_worker.step()
    assert "nsufficient funds" in own_till.chain_worker.trouble
    call_json_rpc(own_ledger.web3, "anvil_setBalance", own_till.chain.sender, hex(wealth))
    own_till.clock.now += own_till.policy.resend_after_s
    check(own_till, job_id, worker, 7)
    assert own_till.chain_worker.trouble == ""


def test_one_process_at_a_time_has_the_duty(chain_fixture: ChainFixture) -> None:
    mate = replace(chain_fixture.chain, holder="a mate")
    assert chain_worker.renew_leader_lease(chain_fixture.chain)
    assert not chain_worker.renew_leader_lease(mate)
    assert not ChainWorker(mate).step()
    chain_fixture.clock.now += chain_fixture.policy.duty_s / 2 + 1
    assert chain_worker.renew_leader_lease(chain_fixture.chain)
    assert not chain_worker.renew_leader_lease(mate)
    chain_fixture.clock.now += chain_fixture.policy.duty_s + 1
    assert chain_worker.renew_leader_lease(mate)
    assert not chain_worker.renew_leader_lease(chain_fixture.chain)
    chain_worker.release_leader_lease(mate)
    assert chain_worker.renew_leader_lease(chain_fixture.chain)


def test_a_dead_process_holds_no_duty(chain_fixture: ChainFixture) -> None:
    """A service that was killed goes on at once when it is started again."""
    say = "from contracts.processes import own_name; print(own_name())"
    dead = subprocess.run([sys.executable, "-c", say], capture_output=True, text=True, check=True).stdout.strip()
    assert known_ended(dead)
    assert chain_worker.renew_leader_lease(replace(chain_fixture.chain, holder=dead))
    assert chain_worker.renew_leader_lease(chain_fixture.chain)


def test_a_process_of_another_machine_may_live(chain_fixture: ChainFixture) -> None:
    _, space, *_ = own_name().split(" ")
    foreign = f"another-boot {space} 999999999 1"
    assert not any(known_ended(name) for name in (foreign, own_name(), "no name of a process", ""))
    assert known_ended(own_name().rpartition(" ")[0] + " 1")
    assert chain_worker.renew_leader_lease(replace(chain_fixture.chain, holder=foreign))
    assert not chain_worker.renew_leader_lease(chain_fixture.chain)


def test_another_sender_has_a_duty_of_its_own(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    other = replace(chain_fixture.chain, key=new_key())
    assert chain_worker.renew_leader_lease(chain_fixture.chain)
    assert chain_worker.renew_leader_lease(other)
    assert other.sender != address_of(chain_fixture.key)
