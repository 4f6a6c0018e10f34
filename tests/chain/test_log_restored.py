"""A restored service whose copy lacks leaves of a head on-chain admits that in its log, and forks no history."""

from contracts import calls
from contracts.log_heads import fetch_heads
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.features.log import job_log
from gradmarket.market.messages import LogHead
from gradmarket.market.terms import BatchState, Hash, ReplicaState
from requester.chain import escrow, settlement_batches
from requester.features import reconcile
from requester.features.log import leaf_rows
from requester.store.tables import Batch, Earned, JobEvent
from tests.chain.chain_fixture import ChainFixture, busy, check
from tests.lanes import FULL
from tests.onchain import NewKey


def explain_heads(chain_fixture: ChainFixture, job_id: str) -> dict[int, str]:
    """Returns an observer's finding on each batch's head, by the log alone: a prefix, lost and admitted, or a fork."""
    with chain_fixture.chain.reading() as reader:
        tree, restarts = leaf_rows.load_tree(reader, job_id), leaf_rows.list_restarts(reader, job_id)
    leaves, found = list(map(Hash, tree.leaves)), dict[int, str]()
    for batch, head in fetch_heads(chain_fixture.ledger, chain_fixture.job(job_id).chain_job or 0).items():
        admitted = any(
            restart.batch == batch and job_log.is_restart(leaves, restart.number, batch, head, restart.at)
            for restart in restarts
        )
        found[batch] = "restored" if admitted else "fork" if job_log.is_ahead(tree, head) else "prefix"
    return found


@FULL
def test_a_copy_without_records_of_the_newest_batch_admits_the_loss(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    check(chain_fixture, job_id, worker, 7)
    chain_fixture.earns(job_id, worker, 3)
    backup = chain_fixture.backup()
    chain_fixture.open_task(job_id, worker, ReplicaState.EXPIRED, 0.0)  # its offer is a leaf that the copy lacks
    check(chain_fixture, job_id, worker, 10)
    assert explain_heads(chain_fixture, job_id) == {0: "prefix", 1: "prefix"}
    chain_fixture.restore(backup)
    chain_fixture.settle_down()
    chain_fixture.earns(job_id, worker, 2)
    check(chain_fixture, job_id, worker, 12)
    assert explain_heads(chain_fixture, job_id) == {0: "prefix", 1: "restored", 2: "prefix"}


@FULL
def test_a_copy_without_what_the_newest_batch_pays_admits_the_loss(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    check(chain_fixture, job_id, worker, 7)
    backup = chain_fixture.backup()
    chain_fixture.earns(job_id, worker, 2)
    check(chain_fixture, job_id, worker, 9)
    chain_fixture.restore(backup)
    chain_fixture.earns(job_id, worker, 2)
    chain_fixture.clock.now += chain_fixture.policy.settle_every_s
    chain_fixture.settle_down()
    assert [event.kind for event in chain_fixture.all(JobEvent, JobEvent.kind == "books_differ")] == ["books_differ"]
    assert explain_heads(chain_fixture, job_id) == {0: "prefix", 1: "restored"}


@FULL
def test_a_copy_with_all_records_goes_on_as_if_nothing_was(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    backup = chain_fixture.backup()
    check(chain_fixture, job_id, worker, 7)
    chain_fixture.restore(backup)
    check(chain_fixture, job_id, worker, 7)
    assert explain_heads(chain_fixture, job_id) == {0: "prefix"}


def test_a_batch_of_our_rows_under_another_head_is_adopted_with_that_head(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    """This service signed its batch and died; its copy, restored elsewhere, settled the same rows by another log."""
    job_id, worker = busy(chain_fixture, new_key)
    assert settlement_batches.settle_due_batches(chain_fixture.chain)
    (ours,) = chain_fixture.all(Batch)
    chain_job = chain_fixture.job(job_id).chain_job or 0
    other = LogHead(chain_job, (ours.log_size or 0) + 1, Hash(b"\x07" * 32))
    rows = chain_fixture.all(Earned, Earned.batch_id == ours.id)
    call = calls.settle_packed(chain_fixture.chain.market, chain_job, 0, escrow.groups_of_batch(rows, other))
    require_receipt(execute_call(chain_fixture.ledger.web3, chain_fixture.key, call))
    chain_fixture.restart()
    assert reconcile.correct_batches(chain_fixture.chain, job_id)
    (batch,) = chain_fixture.all(Batch)
    assert (batch.id, batch.state) == (ours.id, BatchState.SETTLED), "its rows stay in it"
    assert (batch.log_size, batch.log_root) == (other.size, other.root)
    assert explain_heads(chain_fixture, job_id) == {0: "restored"}
    chain_fixture.clock.now += chain_fixture.policy.lost_after_s
    check(chain_fixture, job_id, worker, 7)
