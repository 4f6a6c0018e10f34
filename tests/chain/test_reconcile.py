"""The chain goes back, is started anew or is another: the books are put right, or the work stops and says why."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from onchain import DEPLOYER, NewKey
from till import Till, busy, check

from gradmarket.contracts.deployment import deploy
from gradmarket.contracts.ledger import Ledger
from gradmarket.contracts.local import LocalChain
from gradmarket.contracts.rpc import request
from gradmarket.market.terms import Amount, BatchState
from gradmarket.requester.chain import reconcile
from gradmarket.requester.chain.desk import TransactionState
from gradmarket.requester.store.tables import Batch, Earned, Event, Transaction


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    """The folder of a chain that keeps its state; whatever runs there at the end is stopped."""
    folder = tmp_path / "kept"
    yield folder
    running = LocalChain.reattach(folder)
    if running is not None:
        running.stop()


def on_kept(kept: Path) -> Ledger:
    web3 = LocalChain.open(kept).connect()
    return Ledger(web3, deploy(web3, DEPLOYER))


def snapshot(ledger: Ledger) -> str:
    return str(request(ledger.web3, "evm_snapshot"))


def go_back(ledger: Ledger, to: str) -> None:
    assert request(ledger.web3, "evm_revert", to) is True


def test_anvil_restarted_with_its_state(kept: Path, till_on: Callable[[Ledger], Till], new_key: NewKey) -> None:
    till = till_on(on_kept(kept))
    job_id, worker = busy(till, new_key)
    LocalChain.open(kept).stop()
    assert not till.office.step()
    assert "not answer" in till.office.trouble
    again = Ledger(LocalChain.open(kept).connect(), till.ledger.deployment)
    till.restart(again)
    check(till, job_id, worker, 7)


def test_a_new_chain_stops_the_work_and_says_why(
    own_ledger: Ledger, till_on: Callable[[Ledger], Till], new_key: NewKey
) -> None:
    till = till_on(own_ledger)
    job_id, worker = busy(till, new_key)
    anew = LocalChain.start(None)
    try:
        web3 = anew.connect()
        other = deploy(web3, DEPLOYER)
        assert other.contract == own_ledger.deployment.contract
        till.restart(Ledger(web3, own_ledger.deployment))
        for _ in range(3):
            assert not till.office.step()
        assert "instead of" in till.office.trouble
        assert [event.body["reason"] for event in till.all(Event, Event.kind == "foreign_chain")] == [
            till.office.trouble
        ]
        assert Ledger(web3, other).nonce(till.desk.sender) == 0
    finally:
        anew.stop()
    till.restart(own_ledger)
    check(till, job_id, worker, 7)
    assert till.office.trouble == ""


def test_a_chain_swapped_between_two_steps_is_noticed(
    own_ledger: Ledger, till_on: Callable[[Ledger], Till], new_key: NewKey
) -> None:
    till = till_on(own_ledger)
    busy(till, new_key)
    before = len(till.all(Transaction))
    request(own_ledger.web3, "anvil_reset")
    again = deploy(own_ledger.web3, DEPLOYER)
    assert again.contract == own_ledger.deployment.contract
    assert not till.office.step()
    assert "instance" in till.office.trouble or "genesis" in till.office.trouble
    assert len(till.all(Transaction)) == before


def test_what_the_chain_forgot_is_sent_again_byte_by_byte(
    own_ledger: Ledger, till_on: Callable[[Ledger], Till], new_key: NewKey
) -> None:
    till = till_on(own_ledger)
    job_id, worker = busy(till, new_key)
    saved = snapshot(own_ledger)
    till.settle_down()
    (row,) = till.all(Transaction, Transaction.kind == "settle")
    go_back(own_ledger, saved)
    assert own_ledger.job(till.job(job_id).chain_job or 0).batches == 0
    check(till, job_id, worker, 7)
    (again,) = till.all(Transaction, Transaction.kind == "settle")
    assert (again.hash, again.state) == (row.hash, TransactionState.MINED)


def test_the_chain_forgets_the_whole_job(
    own_ledger: Ledger, till_on: Callable[[Ledger], Till], new_key: NewKey
) -> None:
    till = till_on(own_ledger)
    assert till.desk.grant is not None
    till.desk.grant(Amount(10**6))
    saved = snapshot(own_ledger)
    job_id, worker = busy(till, new_key)
    till.settle_down()
    chain_job = till.job(job_id).chain_job
    go_back(own_ledger, saved)
    till.restart()
    check(till, job_id, worker, 7)
    assert till.job(job_id).chain_job == chain_job


def test_a_batch_is_settled_only_when_it_is_deep_enough(
    own_ledger: Ledger, till_on: Callable[[Ledger], Till], new_key: NewKey
) -> None:
    till = till_on(own_ledger)
    job_id, worker = busy(till, new_key)
    till.with_policy(confirmations=3)
    till.settle_down()
    assert [batch.state for batch in till.all(Batch)] == [BatchState.SENT]
    request(own_ledger.web3, "anvil_mine", "0x2")
    check(till, job_id, worker, 7)


def test_an_unconfirmed_batch_that_a_re_org_drops_is_sent_again(
    own_ledger: Ledger, till_on: Callable[[Ledger], Till], new_key: NewKey
) -> None:
    till = till_on(own_ledger)
    job_id, worker = busy(till, new_key)
    till.with_policy(confirmations=3)
    saved = snapshot(own_ledger)
    till.settle_down()
    go_back(own_ledger, saved)
    till.clock.now += till.policy.resend_after_s
    till.settle_down()
    request(own_ledger.web3, "anvil_mine", "0x2")
    check(till, job_id, worker, 7)


def test_a_restored_database_finds_its_batches_and_its_job_on_the_chain(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    chain_job, backup = till.job(job_id).chain_job, till.backup()
    till.settle_down()
    till.restore(backup)
    assert till.all(Batch) == []
    check(till, job_id, worker, 7)
    assert till.job(job_id).chain_job == chain_job
    assert len(till.all(Batch)) == 1


def test_a_database_restored_from_before_the_opening_does_not_deposit_twice(till: Till) -> None:
    job_id = till.new_job()
    backup = till.backup()
    till.settle_down()
    chain_job, jobs = till.job(job_id).chain_job, _job_count(till)
    till.restore(backup)
    till.settle_down()
    assert (till.job(job_id).chain_job, _job_count(till)) == (chain_job, jobs)


def test_differences_are_told(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    till.settle_down()
    assert reconcile.differences(till.desk, job_id) == []
    till.set_job(job_id, deposited=1)
    with till.desk.begin() as session:
        session.get_one(Earned, till.all(Earned)[0].id).units += 1
        session.get_one(Batch, 1).state = BatchState.SETTLED
    found = " ".join(reconcile.differences(till.desk, job_id))
    for word in ("deposited", "root of batch 0", f"settled for {worker}"):
        assert word in found


def _job_count(till: Till) -> int:
    return int(till.ledger.market.functions.jobCount().call())
