"""The chain goes back, is started anew or is another: the books are put right, or the work stops with its reason."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contracts import calls
from contracts.deployment import deploy_market
from contracts.ledger import Ledger
from contracts.local import LocalChain
from contracts.rpc import call_json_rpc
from gradmarket.market.terms import Amount, BatchState, JobState, Units
from requester.chain.chain_context import TransactionState
from requester.store.tables import Batch, Earned, JobEvent, Transaction
from tests.chain.chain_differences import list_chain_differences
from tests.chain.chain_fixture import BUDGET, ChainFixture, busy, check
from tests.lanes import FULL
from tests.onchain import DEPLOYER, NewKey, send_call, with_money


@pytest.fixture
def kept_folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of a chain that keeps its state; whatever runs there at the end is stopped."""
    folder = tmp_path / "kept"
    yield folder
    running = LocalChain.find_running_chain(folder)
    if running is not None:
        running.stop()


def on_kept(kept: Path) -> Ledger:
    web3 = LocalChain.open(kept).connect()
    return Ledger(web3, deploy_market(web3, DEPLOYER))


def snapshot(ledger: Ledger) -> str:
    return str(call_json_rpc(ledger.web3, "evm_snapshot"))


def go_back(ledger: Ledger, to: str) -> None:
    assert call_json_rpc(ledger.web3, "evm_revert", to) is True


@FULL
def test_anvil_restarted_with_its_state(
    kept_folder: Path, till_on: Callable[[Ledger], ChainFixture], new_key: NewKey
) -> None:
    chain_fixture = till_on(on_kept(kept_folder))
    job_id, worker = busy(chain_fixture, new_key)
    LocalChain.open(kept_folder).stop()
    assert not chain_fixture.chain_worker.step()
    assert "not answer" in chain_fixture.chain_worker.trouble
    again = Ledger(LocalChain.open(kept_folder).connect(), chain_fixture.ledger.deployment)
    chain_fixture.restart(again)
    check(chain_fixture, job_id, worker, 7)


@FULL
def test_a_new_chain_stops_the_work_with_its_reason(
    own_till: ChainFixture, own_ledger: Ledger, new_key: NewKey
) -> None:
    job_id, worker = busy(own_till, new_key)
    anew = LocalChain.start(None)
    try:
        web3 = anew.connect()
        other = deploy_market(web3, DEPLOYER)
        assert other.contract == own_ledger.deployment.contract
        own_till.restart(Ledger(web3, own_ledger.deployment))
        for _ in range(3):
            assert not own_till.chain_worker.step()
        assert "instead of" in own_till.chain_worker.trouble
        assert [event.body["reason"] for event in own_till.all(JobEvent, JobEvent.kind == "foreign_chain")] == [
            own_till.chain_worker.trouble
        ]
        assert Ledger(web3, other).nonce(own_till.chain.sender) == 0
    finally:
        anew.stop()
    own_till.restart(own_ledger)
    check(own_till, job_id, worker, 7)
    assert own_till.chain_worker.trouble == ""


@FULL
def test_a_chain_swapped_between_two_steps_is_noticed(
    own_anvil: LocalChain, till_on: Callable[[Ledger], ChainFixture], new_key: NewKey
) -> None:
    web3 = own_anvil.connect()
    ledger = Ledger(web3, deploy_market(web3, DEPLOYER))
    chain_fixture = till_on(ledger)
    busy(chain_fixture, new_key)
    before = len(chain_fixture.all(Transaction))
    call_json_rpc(web3, "anvil_reset")
    again = deploy_market(web3, DEPLOYER)
    assert again.contract == ledger.deployment.contract
    assert not chain_fixture.chain_worker.step()
    assert "instance" in chain_fixture.chain_worker.trouble or "genesis" in chain_fixture.chain_worker.trouble
    assert len(chain_fixture.all(Transaction)) == before


@FULL
def test_a_transaction_dropped_by_the_chain_is_sent_again_byte_by_byte(
    own_till: ChainFixture, own_ledger: Ledger, new_key: NewKey
) -> None:
    job_id, worker = busy(own_till, new_key)
    saved = snapshot(own_ledger)
    own_till.settle_down()
    (row,) = own_till.all(Transaction, Transaction.kind == "settle")
    go_back(own_ledger, saved)
    assert own_ledger.job(own_till.job(job_id).chain_job or 0).batches == 0
    check(own_till, job_id, worker, 7)
    (again,) = own_till.all(Transaction, Transaction.kind == "settle")
    assert (again.hash, again.state) == (row.hash, TransactionState.MINED)


@pytest.mark.parametrize("moves_in", [True, False], ids=["appears", "vanishes"])
def test_a_stranger_s_deposit_in_a_block_that_replaced_a_looked_one_is_seen(
    own_till: ChainFixture, own_ledger: Ledger, new_key: NewKey, moves_in: bool
) -> None:
    job_id, stranger = own_till.running_job(), with_money(own_ledger, new_key())
    own_till.settle_down()
    saved, chain_job = snapshot(own_ledger), own_till.job(job_id).chain_job or 0
    for deposited in (not moves_in, moves_in):
        if deposited:
            send_call(own_ledger, stranger, calls.top_up(own_till.chain.market, chain_job, Units(70)))
        else:
            call_json_rpc(own_ledger.web3, "evm_mine")
        own_till.settle_down()
        assert own_till.job(job_id).deposited == BUDGET + 70 * deposited
        if deposited != moves_in:
            go_back(own_ledger, saved)
    assert own_till.chain_worker.trouble == ""


@FULL
def test_the_chain_forgets_the_whole_job(own_till: ChainFixture, own_ledger: Ledger, new_key: NewKey) -> None:
    assert own_till.chain.grant is not None
    own_till.chain.grant(Amount(10**6))
    saved = snapshot(own_ledger)
    job_id, worker = busy(own_till, new_key)
    own_till.settle_down()
    chain_job = own_till.job(job_id).chain_job
    go_back(own_ledger, saved)
    own_till.restart()
    check(own_till, job_id, worker, 7)
    assert own_till.job(job_id).chain_job == chain_job


@FULL
def test_a_reservation_that_a_re_org_drops_after_the_end_still_covers_what_was_earned(
    own_till: ChainFixture, own_ledger: Ledger, new_key: NewKey
) -> None:
    """Else it is emptied as one that was never sent, and the requester withdraws the worker's earnings."""
    job_id = own_till.running_job()
    worker = own_till.joins(job_id, new_key())
    before = snapshot(own_ledger)
    own_till.settle_down()
    own_till.earns(job_id, worker)
    own_till.set_job(job_id, state=JobState.FINISHED, ended_at=own_till.clock())
    go_back(own_ledger, before)
    call_json_rpc(own_ledger.web3, "evm_setAutomine", False)
    for step in range(4):
        own_till.chain_worker.step()
        call_json_rpc(own_ledger.web3, "anvil_mine", hex(min(step, 1)))
    call_json_rpc(own_ledger.web3, "evm_setAutomine", True)
    for _ in range(4):
        own_till.settle_down()
        own_till.clock.now += 60
    account = own_till.account(job_id, worker)
    on_chain = own_ledger.account(own_till.job(job_id).chain_job or 0, worker)
    assert on_chain.reserved >= account.earned > 0


def test_a_batch_is_settled_only_when_it_is_deep_enough(
    own_till: ChainFixture, own_ledger: Ledger, new_key: NewKey
) -> None:
    job_id, worker = busy(own_till, new_key)
    own_till.with_policy(confirmations=3)
    own_till.settle_down()
    assert [batch.state for batch in own_till.all(Batch)] == [BatchState.SENT]
    call_json_rpc(own_ledger.web3, "anvil_mine", "0x2")
    check(own_till, job_id, worker, 7)


@FULL
def test_an_unconfirmed_batch_that_a_re_org_drops_is_sent_again(
    own_till: ChainFixture, own_ledger: Ledger, new_key: NewKey
) -> None:
    job_id, worker = busy(own_till, new_key)
    own_till.with_policy(confirmations=3)
    saved = snapshot(own_ledger)
    own_till.settle_down()
    go_back(own_ledger, saved)
    own_till.clock.now += own_till.policy.resend_after_s
    own_till.settle_down()
    call_json_rpc(own_ledger.web3, "anvil_mine", "0x2")
    check(own_till, job_id, worker, 7)


@FULL
def test_a_restored_database_finds_its_batches_and_its_job_on_the_chain(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    chain_job, backup = chain_fixture.job(job_id).chain_job, chain_fixture.backup()
    chain_fixture.settle_down()
    chain_fixture.restore(backup)
    assert chain_fixture.all(Batch) == []
    check(chain_fixture, job_id, worker, 7)
    assert chain_fixture.job(job_id).chain_job == chain_job
    assert len(chain_fixture.all(Batch)) == 1


def test_a_database_restored_from_before_the_opening_does_not_deposit_twice(chain_fixture: ChainFixture) -> None:
    job_id = chain_fixture.new_job()
    backup = chain_fixture.backup()
    chain_fixture.settle_down()
    chain_job, jobs = chain_fixture.job(job_id).chain_job, _job_count(chain_fixture)
    chain_fixture.restore(backup)
    chain_fixture.settle_down()
    assert (chain_fixture.job(job_id).chain_job, _job_count(chain_fixture)) == (chain_job, jobs)


def test_differences_between_books_and_chain_are_listed(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    chain_fixture.settle_down()
    assert list_chain_differences(chain_fixture.chain, job_id) == []
    chain_fixture.set_job(job_id, deposited=1)
    with chain_fixture.chain.begin() as work:
        work.get_one(Earned, chain_fixture.all(Earned)[0].id).units += 1
        work.get_one(Batch, 1).state = BatchState.SETTLED
    found = " ".join(list_chain_differences(chain_fixture.chain, job_id))
    for word in ("deposited", "root of batch 0", f"settled for {worker}"):
        assert word in found


def _job_count(chain_fixture: ChainFixture) -> int:
    return int(chain_fixture.ledger.market.functions.jobCount().call())
