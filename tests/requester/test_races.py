"""Two processes on one PostgreSQL: whatever they do at the same moment, the rows are as if they had taken turns."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from sqlalchemy import delete, select
from sqlalchemy.exc import OperationalError

from gradmarket.market.errors import MarketError
from gradmarket.market.terms import JobState, ReplicaState, TaskState
from requester.chain import chain_worker
from requester.context import Context
from requester.engine import StageEngine, sweep_once
from requester.exchange import poll
from requester.moves.ending import end_job
from requester.stages import aggregate, assign, close, expire, judge
from requester.store import earned_rows, identities, strikes
from requester.store.locks import hold_named_lock, lock_row, retry_on_conflict
from requester.store.strikes import StrikeChange
from requester.store.tables import Account, ApiToken, Earned, Job, JobEvent, Replica, Wave, Worker
from requester.store.work import record_event
from tests.lanes import FULL
from tests.patience import PATIENCE_S, dawdle, wait_for, wait_until
from tests.requester.books import check_books
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import SimWorker, answered

pytestmark = pytest.mark.databases("postgresql")

T = TypeVar("T")


def at_once(*acts: Callable[[], T]) -> list[T]:
    """Runs all from the same moment on; returns their results, or raises the first error."""
    start = threading.Barrier(len(acts))

    def run(act: Callable[[], T]) -> T:
        start.wait(PATIENCE_S)
        return act()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def calm(market: MarketFixture) -> None:
    """From here on nobody drives the stages but the test."""
    market.driven = True


def test_two_draws_give_no_place_and_no_capacity_twice(new_market) -> None:  # type: ignore[no-untyped-def]
    for _ in range(3):
        market = new_market(tasks_per_round=4, replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
        calm(market)
        for _ in range(3):
            market.worker().send_poll()
        contexts = [market.context, market.another(), market.another()]
        at_once(*(partial(assign.run, context, market.job) for context in contexts))
        assert len(market.replicas()) == 3
        assert set(Counter(replica.worker for replica in market.replicas()).values()) == {1}
        assert set(Counter(replica.task_id for replica in market.replicas()).values()) == {1}


@FULL
def test_two_batches_that_strike_the_same_operators_in_other_orders_do_not_clash(new_market) -> None:  # type: ignore[no-untyped-def]
    alone = {"name": "fixed", "replicas": 1, "max_replicas": 1}
    for _ in range(3):
        market = new_market(tasks_per_round=8, settings={"max_strikes": 99}, replication=alone)
        owners = [market.worker() for _ in range(4)]
        others = [market.worker(payout=owner.address, consent=1) for owner in owners]
        market.gather()
        calm(market)
        with market.context.begin() as work:
            struck = [StrikeChange(market.job, worker.address, True) for worker in market.workers]
            strikes.change_strikes(work, struck, market.clock(), 99)
        batches = [
            [worker.poll(given_up=[worker.give_up(worker.newest())]) for worker in batch]
            for batch in (owners, others[::-1])
        ]
        hear: Callable[..., Any] = poll._handle_polls_in_tx.__wrapped__  # type: ignore[attr-defined]
        contexts = [market.context, market.another()]
        at_once(*(partial(hear, context, batch) for context, batch in zip(contexts, batches, strict=True)))
        assert [market.strikes(owner) for owner in owners] == [3, 3, 3, 3]


def test_a_worker_that_withdraws_as_it_is_drawn_is_drawn_or_not(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
    calm(market)
    worker = market.worker()
    for _ in range(10):
        worker.send_poll()
        other = market.another()
        at_once(partial(worker.send_poll, capacity=0), partial(retry_on_conflict(assign.run), other, market.job))
        (row,) = market.all(Worker)
        assert row.capacity == 0
        if market.replicas():
            break
    assert row.fence == len(market.replicas()) <= 1


def gathered(new_market: Any, count: int = 3, **spec: Any) -> tuple[MarketFixture, list[SimWorker]]:
    """Workers that hold a lease each, on a market that nobody drives."""
    market = new_market(**spec)
    workers = [market.worker() for _ in range(count)]
    market.gather()
    calm(market)
    return market, workers


def test_commitments_at_once_close_one_wave_over_all_of_them(new_market) -> None:  # type: ignore[no-untyped-def]
    market, workers = gathered(new_market)
    others = [market.another(), market.another()]
    at_once(
        *(lambda worker=worker: worker.send_poll(commitments=worker.commitments()) for worker in workers),
        *(partial(retry_on_conflict(close.run), context, market.task().id) for context in others),
    )
    for context in others:
        close.run(context, market.task().id)
    assert [replica.state for replica in market.replicas()] == [ReplicaState.COMMITTED] * 3
    assert len(market.all(Wave)) == 1
    assert market.task().state == TaskState.REVEALING
    for worker in workers:
        (wave,) = worker.load_answer().waves
        assert {address for address, _ in wave.commitments} == {worker.address for worker in workers}


def test_reveals_at_once_are_judged_once(new_market) -> None:  # type: ignore[no-untyped-def]
    market, workers = gathered(new_market)
    for worker in workers:
        worker.send_poll(commitments=worker.commitments())
    close.run(market.context, market.task().id)
    for worker in workers:
        worker.receive_answer()
    other = market.another()
    at_once(
        *(lambda worker=worker: worker.send_poll(reveals=worker.reveals()) for worker in workers),
        lambda: retry_on_conflict(judge.run)(other, market.task().id),
    )
    judge.run(other, market.task().id)
    assert [replica.state for replica in market.replicas()] == [ReplicaState.AGREE] * 3
    assert market.task().state == TaskState.UPLOADING


def wanted(market: MarketFixture, workers: Sequence[SimWorker]) -> list[SimWorker]:
    """Those that are asked for their payloads, after everybody committed and revealed."""
    for worker in workers:
        worker.send_poll(commitments=worker.commitments())
    for task in market.tasks():
        close.run(market.context, task.id)
    for worker in workers:
        worker.receive_answer()
        worker.send_poll(reveals=worker.reveals())
    for task in market.tasks():
        judge.run(market.context, task.id)
    for worker in workers:
        worker.receive_answer()
    return [worker for worker in workers if worker.newest().wanted]


def test_a_payload_that_comes_twice_as_its_time_ends_is_paid_once(new_market) -> None:  # type: ignore[no-untyped-def]
    market, workers = gathered(new_market)
    (uploader,) = wanted(market, workers)
    other = market.another()

    def upload() -> None:
        try:
            uploader.upload(uploader.newest())
        except MarketError:
            return

    market.clock.now = (market.task().due_at or 0) + 1
    at_once(upload, upload, lambda: retry_on_conflict(expire.run)(other, market.task().id))
    if market.task().state == TaskState.UPLOADING:
        assert market.earned() == {}
    else:
        assert len(market.all(Earned)) == 3 - sum(r.state == ReplicaState.WITHHELD for r in market.replicas())
    check_books(market)


def test_payloads_of_two_tasks_pay_the_same_workers_at_once(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(tasks_per_round=2)
    workers = [market.worker() for _ in range(3)]
    for worker in workers:
        worker.capacity = 2
    market.gather()
    calm(market)
    assert len(market.replicas()) == 6
    wanted(market, workers)
    uploads = [(worker, held) for worker in workers for held in worker.held.values() if held.wanted]
    assert len(uploads) == 2
    at_once(*(partial(worker.upload, held) for worker, held in uploads))
    assert market.earned() == {worker.address: 2 * PRICE for worker in workers}
    assert [account.earned for account in market.all(Account)] == [2 * PRICE] * 3
    check_books(market)


def test_a_job_that_ends_as_a_task_fails_has_no_task_left_open(new_market) -> None:  # type: ignore[no-untyped-def]
    for _ in range(3):
        market, _workers = gathered(new_market)
        other = market.another()
        market.clock.now += 1000

        @retry_on_conflict
        def cancel(market: MarketFixture) -> None:
            with market.context.begin() as work:
                end_job(market.context, work, lock_row(work, Job, market.job), JobState.CANCELLED, "cancelled")

        at_once(
            partial(cancel, market),
            partial(retry_on_conflict(expire.run), other, market.task().id),
        )
        assert market.state() == JobState.CANCELLED
        for task in market.tasks():
            expire.run(other, task.id)
        assert {task.state for task in market.tasks()} <= {TaskState.CANCELLED, TaskState.FAILED}


def test_one_of_two_merges_and_the_other_does_not_wait_for_it(new_market) -> None:  # type: ignore[no-untyped-def]
    market, workers = gathered(new_market)
    (uploader,) = wanted(market, workers)
    uploader.upload(uploader.newest())
    other = market.another()
    with hold_named_lock(other.sessions, f"{aggregate.TOPIC} {market.job}") as mine:
        assert mine
        assert aggregate.run(market.context, market.job) == market.settings.sweep_s
        assert market.rounds()[0].state == "open"
    assert aggregate.run(market.context, market.job) is None
    assert market.rounds()[0].state == "closed"


def test_a_process_that_dies_at_long_work_leaves_it_to_others(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    dying = market.another()
    with hold_named_lock(dying.sessions, "work") as mine:
        assert mine
        with hold_named_lock(market.context.sessions, "work") as second:
            assert not second
    with hold_named_lock(market.context.sessions, "work") as third:
        assert third


def test_one_process_at_a_time_sends(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    processes = [market.chain(f"process {number}") for number in range(4)]
    for _ in range(3):
        held = at_once(*(partial(chain_worker.renew_leader_lease, chain) for chain in processes))
        assert sum(held) == 1
        chain_worker.release_leader_lease(processes[held.index(True)])


def test_simultaneous_sign_ins_of_one_wallet_make_one_worker(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    address = "0x" + "12" * 20

    @retry_on_conflict
    def sign_in(context: Context) -> None:
        with context.begin() as work:
            identities.sign_in(work, address, address, None, market.clock())  # type: ignore[arg-type]
            identities.store_token(work, "token", "worker", address, None, 0.0)

    contexts = [market.another() for _ in range(4)]
    at_once(*(partial(sign_in, context) for context in contexts))
    assert [row.address for row in market.all(Worker)] == [address]
    assert len(market.all(ApiToken)) == 1


def test_two_that_wait_for_each_other_both_come_through(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    first, second = market.worker(), market.worker()
    met = threading.Barrier(2)
    clashes = []

    @retry_on_conflict
    def count_both(one: SimWorker, another: SimWorker) -> None:
        try:
            with market.context.begin() as work:
                lock_row(work, Worker, one.address).fence += 1
                work.flush()
                if not clashes:
                    met.wait(PATIENCE_S)
                lock_row(work, Worker, another.address).fence += 1
        except OperationalError as error:
            clashes.append(error)
            raise

    at_once(lambda: count_both(first, second), lambda: count_both(second, first))
    assert len(clashes) == 1
    assert {row.fence for row in market.all(Worker)} == {2}


def test_events_are_seen_in_the_order_of_their_numbers(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    writers = [market.another() for _ in range(3)]
    done = threading.Event()
    seen: list[int] = []

    def write(context: Context) -> None:
        for _ in range(30):
            with context.begin() as work:
                record_event(work, market.job, "test", 0.0)

    def follow() -> None:
        while not done.is_set() or len(seen) < 90:
            last = seen[-1] if seen else 0
            with market.reading() as reader:
                kinds = select(JobEvent.id).where(JobEvent.kind == "test", JobEvent.id > last).order_by(JobEvent.id)
                seen.extend(reader.session.scalars(kinds).all())

    at_once(follow, lambda: (at_once(*(partial(write, context) for context in writers)), done.set()))
    assert len(seen) == 90
    assert all(before < after for before, after in pairwise(seen))


@FULL
def test_two_services_and_many_workers_at_once_end_with_the_same_bits(new_market) -> None:  # type: ignore[no-untyped-def]
    spec: dict[str, Any] = {"rounds": 2, "tasks_per_round": 2}
    undisturbed = new_market(**spec)
    for _ in range(6):
        undisturbed.worker()
    undisturbed.play()

    market = new_market(**spec, settings={"sweep_s": 0.06, "max_strikes": 10**6})
    workers = [market.worker() for _ in range(6)]
    calm(market)
    over = threading.Event()

    def work(mine: Sequence[SimWorker]) -> None:
        while not over.is_set():
            dawdle(0.001)
            market.take_turns(*mine)

    def pass_time() -> None:
        def move() -> None:
            market.clock.now += 0.02
            dawdle(0.02)

        wait_until(lambda: market.state() != JobState.RUNNING, meanwhile=move)
        over.set()

    with StageEngine(market.context, market.stages), StageEngine(market.another(), market.stages):
        at_once(pass_time, *(partial(work, pair) for pair in (workers[:2], workers[2:4], workers[4:])))
    assert market.state() == JobState.FINISHED, market.why_waiting()
    assert market.final_parameters() == undisturbed.final_parameters()
    check_books(market)


def test_a_notification_reaches_another_process_after_the_commit(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    here, there = market.context, market.another()
    with there.notifier.listen(["topic"]) as notified, there.notifier.listen(["another"]) as other:
        for topic in (notified, other):
            wait_for(topic)  # whoever begins to listen looks at the rows once
            topic.clear()
        with here.begin() as work:
            record_event(work, market.job, "test", 0.0)
            from_here = [f"{'x' * 60}{number}" for number in range(500)]
            here.notifier.promise(work.connection, [*from_here, "topic"])
            with market.another().begin() as beside:
                beside.notify("another")
            wait_for(other)
            assert not notified.is_set(), "not before the commit"
            other.clear()
        wait_for(notified)
        assert not other.is_set()


def test_a_listener_that_lost_its_connection_reconnects_and_looks_at_once(new_market, postgres) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    there = market.another()
    with there.notifier.listen(["topic"]) as notified:
        wait_for(notified)
        notified.clear()
        postgres.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'LISTEN gradmarket'")
        wait_for(notified)
        notified.clear()
        with market.context.begin() as work:
            market.context.notifier.promise(work.connection, ["topic"])
        wait_for(notified)


def test_a_stage_waits_for_no_reader(new_market) -> None:  # type: ignore[no-untyped-def]
    market, workers = gathered(new_market)
    for worker in workers:
        worker.send_poll(commitments=worker.commitments())
    with market.reading() as reader:
        before = reader.session.scalars(select(Job)).all()
        assert sweep_once(market.another(), close) in {(float("inf"), True), (float("inf"), False)}
        assert [job.state for job in before] == [JobState.RUNNING]
    assert market.task().state == TaskState.REVEALING
    assert answered(market, workers[0], workers[0].request).waves


def test_earnings_are_numbered_as_they_are_committed(new_market) -> None:  # type: ignore[no-untyped-def]
    """A reader of payments by their numbers misses none that another transaction still holds."""
    market = new_market()
    for _ in range(3):
        market.worker()
    market.play()
    early, late, _ = market.all(Earned)
    task, told, over = market.task(), threading.Event(), threading.Event()
    with market.context.begin() as work:
        work.session.execute(delete(Earned))

    def earn(row: Earned) -> None:
        with market.another().begin() as work:
            replica = work.get_one(Replica, row.replica_id)
            account = work.get_one(Account, (row.job_id, row.worker))
            earned_rows.record_earning(work, account, task, replica, row.digest, row.at)
            work.flush()
            told.set()
            assert row is late or over.wait(PATIENCE_S)

    def earn_beside() -> None:
        wait_for(told)
        earn(late)
        over.set()

    at_once(partial(earn, early), earn_beside)
    assert [row.replica_id for row in sorted(market.all(Earned), key=lambda row: row.id)] == [
        late.replica_id,
        early.replica_id,
    ]
