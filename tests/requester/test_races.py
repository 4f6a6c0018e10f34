"""Two processes on one PostgreSQL: whatever they do at the same moment, the rows are as if they had taken turns."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from books import check_books
from market_floor import PRICE, Floor
from market_workers import SimWorker, answered
from sqlalchemy import delete, select
from sqlalchemy.exc import OperationalError

from gradmarket.market.errors import MarketError
from gradmarket.market.terms import JobState, ReplicaState, TaskState
from gradmarket.requester.chain import duty
from gradmarket.requester.context import Context
from gradmarket.requester.engine import Engine, sweep_once
from gradmarket.requester.stages import aggregate, assign, close, expire, judge
from gradmarket.requester.stages.ending import end
from gradmarket.requester.store import identities, money
from gradmarket.requester.store.events import tell
from gradmarket.requester.store.locks import alone, locked
from gradmarket.requester.store.patience import patiently
from gradmarket.requester.store.tables import Account, Earned, Event, Job, Replica, Token, Wave, Worker

pytestmark = pytest.mark.parametrize("new_database", ["postgresql"], indirect=True)

T = TypeVar("T")


def at_once(*acts: Callable[[], T]) -> list[T]:
    """Lets all begin at the same moment; their results, or the first error."""
    start = threading.Barrier(len(acts))

    def run(act: Callable[[], T]) -> T:
        start.wait(10)
        return act()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def calm(floor: Floor) -> None:
    """From here on nobody drives the stages but the test."""
    floor.driven = True


def test_two_draws_give_no_place_and_no_capacity_twice(new_floor) -> None:  # type: ignore[no-untyped-def]
    for _ in range(3):
        floor = new_floor(tasks_per_round=4, replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
        calm(floor)
        for _ in range(3):
            floor.worker().say()
        contexts = [floor.context, floor.another(), floor.another()]
        at_once(*(partial(assign.run, context, floor.job) for context in contexts))
        assert len(floor.replicas()) == 3
        assert set(Counter(replica.worker for replica in floor.replicas()).values()) == {1}
        assert set(Counter(replica.task_id for replica in floor.replicas()).values()) == {1}


def test_a_worker_that_withdraws_as_it_is_drawn_is_drawn_or_not(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
    calm(floor)
    worker = floor.worker()
    for _ in range(10):
        worker.say()
        other = floor.another()
        at_once(partial(worker.say, capacity=0), partial(patiently(assign.run), other, floor.job))
        (row,) = floor.all(Worker)
        assert row.capacity == 0
        if floor.replicas():
            break
    assert row.fence == len(floor.replicas()) <= 1


def gathered(new_floor: Any, count: int = 3, **spec: Any) -> tuple[Floor, list[SimWorker]]:
    """Workers that hold a lease each, on a floor that nobody drives."""
    floor = new_floor(**spec)
    workers = [floor.worker() for _ in range(count)]
    floor.gather()
    calm(floor)
    return floor, workers


def test_commitments_at_once_close_one_wave_over_all_of_them(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor, workers = gathered(new_floor)
    others = [floor.another(), floor.another()]
    at_once(
        *(lambda worker=worker: worker.say(commitments=worker.commitments()) for worker in workers),
        *(partial(patiently(close.run), context, floor.task().id) for context in others),
    )
    for context in others:
        close.run(context, floor.task().id)
    assert [replica.state for replica in floor.replicas()] == [ReplicaState.COMMITTED] * 3
    assert len(floor.all(Wave)) == 1
    assert floor.task().state == TaskState.REVEALING
    for worker in workers:
        (wave,) = worker.tell().waves
        assert {address for address, _ in wave.commitments} == {worker.address for worker in workers}


def test_reveals_at_once_are_judged_once(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor, workers = gathered(new_floor)
    for worker in workers:
        worker.say(commitments=worker.commitments())
    close.run(floor.context, floor.task().id)
    for worker in workers:
        worker.hear()
    other = floor.another()
    at_once(
        *(lambda worker=worker: worker.say(reveals=worker.reveals()) for worker in workers),
        lambda: patiently(judge.run)(other, floor.task().id),
    )
    judge.run(other, floor.task().id)
    assert [replica.state for replica in floor.replicas()] == [ReplicaState.AGREE] * 3
    assert floor.task().state == TaskState.UPLOADING


def wanted(floor: Floor, workers: Sequence[SimWorker]) -> list[SimWorker]:
    """Those that are asked for their payloads, after everybody committed and revealed."""
    for worker in workers:
        worker.say(commitments=worker.commitments())
    for task in floor.tasks():
        close.run(floor.context, task.id)
    for worker in workers:
        worker.hear()
        worker.say(reveals=worker.reveals())
    for task in floor.tasks():
        judge.run(floor.context, task.id)
    for worker in workers:
        worker.hear()
    return [worker for worker in workers if worker.newest().wanted]


def test_a_payload_that_comes_twice_as_its_time_ends_is_paid_once(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor, workers = gathered(new_floor)
    (uploader,) = wanted(floor, workers)
    other = floor.another()

    def upload() -> None:
        try:
            uploader.upload(uploader.newest())
        except MarketError:
            return

    floor.clock.now = (floor.task().due_at or 0) + 1
    at_once(upload, upload, lambda: patiently(expire.run)(other, floor.task().id))
    if floor.task().state == TaskState.UPLOADING:
        assert floor.earned() == {}
    else:
        assert len(floor.all(Earned)) == 3 - sum(r.state == ReplicaState.WITHHELD for r in floor.replicas())
    check_books(floor)


def test_payloads_of_two_tasks_pay_the_same_workers_at_once(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(tasks_per_round=2)
    workers = [floor.worker() for _ in range(3)]
    for worker in workers:
        worker.capacity = 2
    floor.gather()
    calm(floor)
    assert len(floor.replicas()) == 6
    for worker in workers:
        worker.say(commitments=worker.commitments())
    for task in floor.tasks():
        close.run(floor.context, task.id)
    for worker in workers:
        worker.hear()
        worker.say(reveals=worker.reveals())
    for task in floor.tasks():
        judge.run(floor.context, task.id)
    for worker in workers:
        worker.hear()
    uploads = [(worker, held) for worker in workers for held in worker.held.values() if held.wanted]
    assert len(uploads) == 2
    at_once(*(partial(worker.upload, held) for worker, held in uploads))
    assert floor.earned() == {worker.address: 2 * PRICE for worker in workers}
    assert [account.earned for account in floor.all(Account)] == [2 * PRICE] * 3
    check_books(floor)


def test_a_job_that_ends_as_a_task_fails_has_no_task_left_open(new_floor) -> None:  # type: ignore[no-untyped-def]
    for _ in range(3):
        floor, _workers = gathered(new_floor)
        other = floor.another()
        floor.clock.now += 1000

        @patiently
        def cancel(floor: Floor) -> None:
            with floor.context.begin() as session:
                end(floor.context, session, locked(session, Job, floor.job), JobState.CANCELLED, "cancelled")

        at_once(
            partial(cancel, floor),
            partial(patiently(expire.run), other, floor.task().id),
        )
        assert floor.state() == JobState.CANCELLED
        for task in floor.tasks():
            expire.run(other, task.id)
        assert {task.state for task in floor.tasks()} <= {TaskState.CANCELLED, TaskState.FAILED}


def test_one_of_two_merges_and_the_other_does_not_wait_for_it(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor, workers = gathered(new_floor)
    (uploader,) = wanted(floor, workers)
    uploader.upload(uploader.newest())
    other = floor.another()
    with alone(other.sessions, f"{aggregate.TOPIC} {floor.job}") as mine:
        assert mine
        assert aggregate.run(floor.context, floor.job) == floor.settings.sweep_s
        assert floor.rounds()[0].state == "open"
    assert aggregate.run(floor.context, floor.job) is None
    assert floor.rounds()[0].state == "closed"


def test_a_process_that_dies_at_long_work_leaves_it_to_others(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    dying = floor.another()
    with alone(dying.sessions, "work") as mine:
        assert mine
        with alone(floor.context.sessions, "work") as second:
            assert not second
    with alone(floor.context.sessions, "work") as third:
        assert third


def test_one_process_at_a_time_sends(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    desks = [floor.desk(f"process {number}") for number in range(4)]
    for _ in range(3):
        held = at_once(*(partial(duty.hold, desk) for desk in desks))
        assert sum(held) == 1
        duty.leave(desks[held.index(True)])


def test_whoever_signs_in_twice_at_once_is_one_worker(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    address = "0x" + "12" * 20

    @patiently
    def sign_in(context: Context) -> None:
        with context.begin() as session:
            identities.sign_in(session, address, address, None, floor.clock())  # type: ignore[arg-type]
            identities.remember(session, "token", "worker", address, None, 0.0)

    contexts = [floor.another() for _ in range(4)]
    at_once(*(partial(sign_in, context) for context in contexts))
    assert [row.address for row in floor.all(Worker)] == [address]
    assert len(floor.all(Token)) == 1


def test_two_that_wait_for_each_other_both_come_through(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    first, second = floor.worker(), floor.worker()
    met = threading.Barrier(2)
    clashes = []

    @patiently
    def count_both(one: SimWorker, another: SimWorker) -> None:
        try:
            with floor.context.begin() as session:
                locked(session, Worker, one.address).fence += 1
                session.flush()
                if not clashes:
                    met.wait(10)
                locked(session, Worker, another.address).fence += 1
        except OperationalError as error:
            clashes.append(error)
            raise

    at_once(lambda: count_both(first, second), lambda: count_both(second, first))
    assert len(clashes) == 1
    assert {row.fence for row in floor.all(Worker)} == {2}


def test_events_are_seen_in_the_order_of_their_numbers(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    writers = [floor.another() for _ in range(3)]
    done = threading.Event()
    seen: list[int] = []

    def write(context: Context) -> None:
        for _ in range(30):
            with context.begin() as session:
                tell(session, floor.job, "test", 0.0)

    def follow() -> None:
        while not done.is_set() or len(seen) < 90:
            last = seen[-1] if seen else 0
            with floor.reading() as session:
                kinds = select(Event.id).where(Event.kind == "test", Event.id > last).order_by(Event.id)
                seen.extend(session.scalars(kinds).all())

    at_once(follow, lambda: (at_once(*(partial(write, context) for context in writers)), done.set()))
    assert len(seen) == 90
    assert all(before < after for before, after in pairwise(seen))


def test_two_services_and_many_workers_at_once_end_with_the_same_bits(new_floor) -> None:  # type: ignore[no-untyped-def]
    spec: dict[str, Any] = {"rounds": 2, "tasks_per_round": 2}
    undisturbed = new_floor(**spec)
    for _ in range(6):
        undisturbed.worker()
    undisturbed.play()

    floor = new_floor(**spec, settings={"sweep_s": 0.06, "max_strikes": 10**6})
    workers = [floor.worker() for _ in range(6)]
    calm(floor)
    over = threading.Event()

    def work(mine: Sequence[SimWorker]) -> None:
        while not over.wait(0.001):
            for worker in mine:
                worker.turn()

    def pass_time() -> None:
        for _ in range(1500):
            if floor.state() != JobState.RUNNING:
                break
            floor.clock.now += 0.02
            over.wait(0.02)
        over.set()

    with Engine(floor.context, floor.stages), Engine(floor.another(), floor.stages):
        at_once(pass_time, *(partial(work, pair) for pair in (workers[:2], workers[2:4], workers[4:])))
    assert floor.state() == JobState.FINISHED, floor.why_waiting()
    assert floor.final_parameters() == undisturbed.final_parameters()
    check_books(floor)


def test_a_ring_is_heard_in_another_process(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    here, there = floor.context, floor.another()
    with there.bell.listen(["topic"]) as rung, there.bell.listen(["another"]) as other:
        assert rung.wait(10), "whoever begins to listen looks at the rows once"
        rung.clear()
        with here.begin() as session:
            tell(session, floor.job, "test", 0.0)
            from_here = [f"{'x' * 60}{number}" for number in range(500)]
            here.bell.promise(session, [*from_here, "topic"])
            assert not rung.wait(0.1), "not before the commit"
        assert rung.wait(10)
        other.clear()
        assert not other.is_set()


def test_who_lost_its_connection_hears_again_and_looks_at_once(new_floor, postgres) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    there = floor.another()
    with there.bell.listen(["topic"]) as rung:
        assert rung.wait(10)
        rung.clear()
        postgres.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'LISTEN gradmarket'")
        assert rung.wait(10)
        rung.clear()
        with floor.context.begin() as session:
            floor.context.bell.promise(session, ["topic"])
        assert rung.wait(10)


def test_a_stage_waits_for_nobody_who_only_reads(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor, workers = gathered(new_floor)
    for worker in workers:
        worker.say(commitments=worker.commitments())
    with floor.reading() as session:
        before = session.scalars(select(Job)).all()
        assert sweep_once(floor.another(), close) in {(float("inf"), True), (float("inf"), False)}
        assert [job.state for job in before] == [JobState.RUNNING]
    assert floor.task().state == TaskState.REVEALING
    assert answered(floor, workers[0], workers[0].request).waves


def test_earnings_are_numbered_as_they_are_committed(new_floor) -> None:  # type: ignore[no-untyped-def]
    """Who reads payments by their numbers, and has read one, misses none that another transaction still holds."""
    floor = new_floor()
    for _ in range(3):
        floor.worker()
    floor.play()
    early, late, _ = floor.all(Earned)
    task, told, over = floor.task(), threading.Event(), threading.Event()
    with floor.context.begin() as session:
        session.execute(delete(Earned))

    def earn(row: Earned) -> None:
        with floor.another().begin() as session:
            replica = session.get_one(Replica, row.replica_id)
            money.earn(session, task, replica, row.digest, row.at)
            session.flush()
            told.set()
            assert row is late or over.wait(10)

    def earn_beside() -> None:
        assert told.wait(10)
        earn(late)
        over.set()

    at_once(partial(earn, early), earn_beside)
    assert [row.replica_id for row in sorted(floor.all(Earned), key=lambda row: row.id)] == [
        late.replica_id,
        early.replica_id,
    ]
