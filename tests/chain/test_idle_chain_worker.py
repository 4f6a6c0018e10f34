"""A chain worker with nothing to do asks little: a notification, a block, a row and time each wake it."""

import threading

from sqlalchemy import update

from requester.chain.chain_worker import LOOK_S, ChainWorker
from requester.store.tables import Batch, Earned
from tests.chain.chain_fixture import ChainFixture
from tests.onchain import NewKey


def at_rest(chain_fixture: ChainFixture) -> threading.Event:
    """Gives the fixture a chain worker that a notifier wakes, after it has done everything; returns the notifier."""
    notified = threading.Event()
    chain_fixture.chain_worker = ChainWorker(chain_fixture.chain, notified)
    chain_fixture.settle_down()
    assert not chain_fixture.chain_worker.wanted()
    return notified


def test_a_ring_wakes_it(chain_fixture: ChainFixture) -> None:
    notified = at_rest(chain_fixture)
    notified.set()
    assert chain_fixture.chain_worker.wanted()
    chain_fixture.settle_down()
    assert not chain_fixture.chain_worker.wanted()


def test_a_block_wakes_it(chain_fixture: ChainFixture) -> None:
    at_rest(chain_fixture)
    chain_fixture.ledger.web3.provider.make_request("evm_mine", [])
    assert chain_fixture.chain_worker.wanted()


def test_only_a_due_settlement_wakes_the_chain_worker(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id = chain_fixture.running_job()
    worker = chain_fixture.joins(job_id, new_key())
    at_rest(chain_fixture)
    chain_fixture.earns(job_id, worker)
    chain_fixture.clock.now += chain_fixture.chain.policy.settle_every_s - 1
    chain_fixture.settle_down()  # it looked at everything just now, and will not of itself for a while
    assert not chain_fixture.chain_worker.wanted()
    chain_fixture.clock.now += 1
    assert chain_fixture.chain_worker.wanted()
    chain_fixture.settle_down()
    assert len(chain_fixture.all(Batch)) == 1


def test_revoked_earnings_do_not_keep_the_chain_worker_awake(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id = chain_fixture.running_job()
    worker = chain_fixture.joins(job_id, new_key())
    at_rest(chain_fixture)
    chain_fixture.earns(job_id, worker)
    with chain_fixture.chain.begin() as work:
        work.session.execute(update(Earned).values(revoked=True))
    chain_fixture.clock.now += chain_fixture.chain.policy.settle_every_s
    chain_fixture.settle_down()
    assert not chain_fixture.chain_worker.wanted()
    assert chain_fixture.all(Batch) == []


def test_a_lost_ring_costs_a_few_seconds(chain_fixture: ChainFixture) -> None:
    at_rest(chain_fixture)
    chain_fixture.clock.now += LOOK_S - 0.1
    assert not chain_fixture.chain_worker.wanted()
    chain_fixture.clock.now += 0.1
    assert chain_fixture.chain_worker.wanted()
