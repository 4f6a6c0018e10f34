"""An office with nothing to do asks little, and misses nothing: a ring, a block, the books, and time each wake it."""

import threading

from onchain import NewKey
from sqlalchemy import update
from till import Till

from gradmarket.requester.chain.office import LOOK_S, Office
from gradmarket.requester.store.tables import Batch, Earned


def at_rest(till: Till) -> threading.Event:
    """The till with an office that a bell wakes, after it has done everything; the bell."""
    rung = threading.Event()
    till.office = Office(till.desk, rung)
    till.settle_down()
    assert not till.office.wanted()
    return rung


def test_a_ring_wakes_it(till: Till) -> None:
    rung = at_rest(till)
    rung.set()
    assert till.office.wanted()
    till.settle_down()
    assert not till.office.wanted()


def test_a_block_wakes_it(till: Till) -> None:
    at_rest(till)
    till.ledger.web3.provider.make_request("evm_mine", [])
    assert till.office.wanted()


def test_what_is_due_in_the_books_wakes_it_and_what_is_not_does_not(till: Till, new_key: NewKey) -> None:
    job_id = till.running_job()
    worker = till.joins(job_id, new_key())
    at_rest(till)
    till.earns(job_id, worker)
    till.clock.now += till.desk.policy.settle_every_s - 1
    till.settle_down()  # it looked at everything just now, and will not of itself for a while
    assert not till.office.wanted()
    till.clock.now += 1
    assert till.office.wanted()
    till.settle_down()
    assert len(till.all(Batch)) == 1


def test_what_an_audit_took_back_does_not_keep_it_awake(till: Till, new_key: NewKey) -> None:
    job_id = till.running_job()
    worker = till.joins(job_id, new_key())
    at_rest(till)
    till.earns(job_id, worker)
    with till.desk.begin() as session:
        session.execute(update(Earned).values(revoked=True))
    till.clock.now += till.desk.policy.settle_every_s
    till.settle_down()
    assert not till.office.wanted()
    assert till.all(Batch) == []


def test_a_lost_ring_costs_a_few_seconds(till: Till) -> None:
    at_rest(till)
    till.clock.now += LOOK_S - 0.1
    assert not till.office.wanted()
    till.clock.now += 0.1
    assert till.office.wanted()
