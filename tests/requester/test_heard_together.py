"""Several polls, or payloads, in one transaction: each counts as if it had come alone."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event

from gradmarket.market.terms import ReplicaState, TaskState, blob_digest
from requester.exchange import payload_upload, poll
from requester.exchange.outbox import Poll
from requester.exchange.payload_upload import Delivery
from requester.store.tables import Earned, Wave, Worker
from tests.databases import BOTH
from tests.requester.books import check_books
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import SimWorker, part_of, wants

pytestmark = BOTH

ALONE = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}


def commit_together(market: MarketFixture) -> None:
    told = poll.handle_polls(market.context, [worker.poll(worker.commitments()) for worker in market.workers])
    assert [answer.refusals for answer in told] == [(), (), ()]
    for worker in market.workers:
        worker.receive_answer()


def test_all_commit_and_all_reveal_at_once(leased: MarketFixture) -> None:
    commit_together(leased)
    assert (leased.task().state, len(leased.all(Wave))) == (TaskState.REVEALING, 1)
    told = poll.handle_polls(leased.context, [worker.poll(reveals=worker.reveals()) for worker in leased.workers])
    assert leased.task().state == TaskState.UPLOADING
    assert sum(len(answer.uploads) for answer in told) == 1
    assert [len(answer.verdicts) for answer in told] == [1, 1, 1]


def test_one_that_is_refused_leaves_the_others(leased: MarketFixture) -> None:
    honest, forger, late = leased.workers
    forged = forger.commitment(forger.newest(), signature=bytes(65))
    stale = late.commitment(late.newest(), fence=late.newest().lease.fence + 1)
    polls = [honest.poll(honest.commitments()), forger.poll([forged]), late.poll([stale])]
    codes = [[refusal.code for refusal in answer.refusals] for answer in poll.handle_polls(leased.context, polls)]
    assert codes == [[], ["refused"], ["too_late"]]
    states = [leased.replica(worker).state for worker in leased.workers]
    assert states == [ReplicaState.COMMITTED, ReplicaState.LEASED, ReplicaState.LEASED]


def test_two_polls_of_one_worker_commit_once(leased: MarketFixture) -> None:
    worker = leased.workers[0]
    made = worker.commitments()
    first, second = poll.handle_polls(leased.context, [worker.poll(made), worker.poll(made)])
    assert (first.refusals, second.refusals) == ((), ())
    assert leased.replica(worker).state == ReplicaState.COMMITTED


def test_a_reveal_beside_the_commitment_that_it_opens_comes_too_early(leased: MarketFixture) -> None:
    worker = leased.workers[0]
    held = worker.newest()
    both = worker.poll(worker.commitments(), [worker.revelation(held)])
    others = [other.poll(other.commitments()) for other in leased.workers[1:]]
    told, *_ = poll.handle_polls(leased.context, [both, *others])
    assert [refusal.code for refusal in told.refusals] == ["too_early"]
    assert leased.replica(worker).state == ReplicaState.COMMITTED


@pytest.fixture
def bringing(new_market) -> MarketFixture:  # type: ignore[no-untyped-def]
    """Two workers are asked for a payload each; that of the first is malformed."""
    market: MarketFixture = new_market(**ALONE, tasks_per_round=2)
    spoiler, _honest = market.worker(), market.worker()
    honestly = spoiler.compute
    spoiler.compute = lambda offer: honestly(offer)[:-4]  # type: ignore[method-assign]
    market.gather()
    market.commit()
    market.reveal()
    for worker in market.workers:
        worker.receive_answer()
    assert {task.state for task in market.tasks()} == {TaskState.UPLOADING}
    return market


@contextmanager
def brought(market: MarketFixture, workers: Sequence[SimWorker]) -> Iterator[list[Poll]]:
    with ExitStack() as stack:
        polls = ((worker, worker.poll(payloads=(part_of(worker.newest()),))) for worker in workers)
        yield [replace(said, deliveries=(_brought(market, worker, stack),)) for worker, said in polls]


def _brought(market: MarketFixture, worker: SimWorker, stack: ExitStack) -> Delivery:
    held = worker.newest()
    want = wants(market, worker, held.lease.replica, held.lease.fence)
    assert want.root == blob_digest(held.payload)
    arrival = payload_upload.build_incoming_upload(want, stack.enter_context(market.context.blobs.receive()))
    arrival.take(held.payload)
    return payload_upload.inspect_and_store_payload(market.context, want, arrival)


def test_payloads_are_booked_together_and_a_bad_one_is_its_own_affair(bringing: MarketFixture) -> None:
    _spoiler, honest = bringing.workers
    with brought(bringing, bringing.workers) as polls:
        rejected, paid = poll.handle_polls(bringing.context, polls)
    states = [verdict.state for answer in (rejected, paid) for verdict in answer.verdicts]
    assert states == [ReplicaState.REJECTED, ReplicaState.PAYABLE]
    assert [voucher.cumulative for answer in (rejected, paid) for voucher in answer.vouchers] == [PRICE]
    assert bringing.earned() == {honest.address: PRICE}
    check_books(bringing)


def test_a_payload_that_comes_twice_at_once_is_paid_once(bringing: MarketFixture) -> None:
    _spoiler, honest = bringing.workers
    with brought(bringing, [honest, honest]) as polls:
        first, second = poll.handle_polls(bringing.context, polls)
    assert first == second
    assert len(bringing.all(Earned)) == 1
    check_books(bringing)


@contextmanager
def capture_statements(market: MarketFixture) -> Iterator[list[str]]:
    """The queries and updates that are sent meanwhile; an insert on SQLite is a statement for each row."""
    statements, engine = list[str](), market.context.sessions.kw["bind"]

    def record_statement(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.extend([] if statement.startswith("INSERT") else [statement])

    event.listen(engine, "before_cursor_execute", record_statement)
    try:
        yield statements
    finally:
        event.remove(engine, "before_cursor_execute", record_statement)


def test_three_payloads_take_as_many_statements_as_one(new_market) -> None:  # type: ignore[no-untyped-def]
    market: MarketFixture = new_market(**ALONE, tasks_per_round=40)
    for _ in range(4):
        market.worker()
    market.gather()
    market.commit()
    market.reveal()
    for worker in market.workers:
        worker.receive_answer()
    sent = []
    for share in (market.workers[:1], market.workers[1:]):
        with brought(market, share) as polls, capture_statements(market) as statements:
            poll.handle_polls(market.context, polls)
        sent.append(statements)
    assert sent[0] == sent[1]


@contextmanager
def locking(market: MarketFixture) -> Iterator[list[str]]:
    """The tables whose rows are locked meanwhile, in the order of the locks."""
    tables, engine = list[str](), market.context.sessions.kw["bind"]

    def record_lock(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if locked := re.search(r"(?s:FROM (\w+).*)FOR NO KEY UPDATE(?: OF (\w+))?", statement):
            tables.append(locked[2] or locked[1])

    event.listen(engine, "before_cursor_execute", record_lock)
    try:
        yield tables
    finally:
        event.remove(engine, "before_cursor_execute", record_lock)


@pytest.mark.databases("postgresql")
def test_a_worker_s_first_delivery_locks_its_row_before_its_account(bringing: MarketFixture) -> None:
    with brought(bringing, bringing.workers) as polls, locking(bringing) as tables:
        poll.handle_polls(bringing.context, polls)
    assert [table for table in tables if table in {"workers", "accounts"}] == ["workers", "accounts"]
    known, other = sorted(bringing.all(Worker), key=lambda worker: worker.address != bringing.workers[1].address)
    assert (known.accepted_at, other.accepted_at) == (bringing.clock(), None)
