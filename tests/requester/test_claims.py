"""Several stage workers on one PostgreSQL share the tasks, and no hot query reads a whole table."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, insert, text

from gradmarket.market.terms import ReplicaState, TaskState
from requester.stages import assign, close, expire, judge
from requester.store.locks import lock_row
from requester.store.tables import Replica, Task, Worker
from tests.lanes import FULL
from tests.requester.market_fixture import MarketFixture
from tests.requester.market_workers import answered

pytestmark = pytest.mark.databases("postgresql")

ONE_OF_TWO = {"tasks_per_round": 2, "replication": {"name": "fixed", "replicas": 2, "max_replicas": 2}}


def half_committed(new_market: Callable[..., MarketFixture]) -> MarketFixture:
    """Two tasks in whose waves one of two has committed, and whose deadlines are over; nobody drives the stages."""
    market = new_market(**ONE_OF_TWO)
    first, second = market.worker(), market.worker()
    first.capacity = second.capacity = 2
    market.gather()
    market.driven = True
    first.send_poll(commitments=first.commitments())
    market.clock.now += 60
    return market


@pytest.mark.parametrize("stage", [close, expire])
def test_a_task_that_another_works_at_is_left_to_it_and_the_next_is_taken(new_market, stage: Any) -> None:  # type: ignore
    market = half_committed(new_market)
    here, there = market.context, market.another()
    first, second = market.tasks()
    with here.begin() as work, ThreadPoolExecutor(1) as pool:
        lock_row(work, Task, first.id)
        assert pool.submit(stage.run, there, first.id).result(10) == market.settings.sweep_s
        assert pool.submit(stage.run, there, second.id).result(10) is None
    before = {task.id: task.state for task in (first, second)}
    after = {task.id: task.state for task in market.tasks()}
    assert after[first.id] == before[first.id]
    if stage is close:
        assert after[second.id] == TaskState.REVEALING
    assert stage.run(there, first.id) is None
    lapsed = {replica.task_id for replica in market.replicas() if replica.state != ReplicaState.COMMITTED}
    assert lapsed == {first.id, second.id}


def test_two_stage_workers_close_all_waves_once(new_market) -> None:  # type: ignore[no-untyped-def]
    market = half_committed(new_market)
    contexts = [market.context, market.another()]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda context: [close.run(context, task.id) for task in market.tasks()], contexts))
    assert {task.state for task in market.tasks()} == {TaskState.REVEALING}


@contextmanager
def capture_queries(market: MarketFixture) -> Iterator[list[tuple[str, Any]]]:
    """The queries that are asked meanwhile, with their values."""
    heard: list[tuple[str, Any]] = []

    def record_query(_connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
        if statement.lstrip().upper().startswith(("SELECT", "UPDATE")) and "pg_notify" not in statement:
            heard.append((statement, values))

    engine = market.context.sessions.kw["bind"]
    event.listen(engine, "before_cursor_execute", record_query)
    try:
        yield heard
    finally:
        event.remove(engine, "before_cursor_execute", record_query)


def crowd(market: MarketFixture, rows: int) -> None:
    """Adds the rows of a long-lived market: many ended tasks and gone workers, each with a replica."""
    (task,), now = market.tasks(), market.clock()
    columns = {column.key: getattr(task, column.key) for column in Task.__mapper__.columns}
    tasks = [
        columns | {"id": f"t{n}", "round": n + 1, "state": TaskState.FINAL, "offer_digest": b"%032d" % n}
        for n in range(rows)
    ]
    base = {"payout": "0x", "operator": "0x", "determinism_class": "old", "joined_at": 0.0, "seen_at": 0.0}
    workers = [base | {"address": f"w{n}", "jobs": [], "least_prices": {}} for n in range(rows)]
    held = {"job_id": market.job, "payout": "0x", "operator": "0x", "wave": 0, "fence": 1, "leased_at": now}
    held |= {"state": ReplicaState.PAYABLE, "lease_until": now, "heard": True}
    replicas = [held | {"id": f"r{n}", "task_id": f"t{n}", "worker": f"w{n}"} for n in range(rows)]
    with market.context.begin() as work:
        work.session.execute(insert(Task), tasks)
        work.session.execute(insert(Worker), workers)
        work.session.execute(insert(Replica), replicas)
    with market.context.sessions.kw["bind"].connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))


@FULL
def test_no_hot_query_reads_all_tasks_replicas_or_workers(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
    crowd(market, 2000)
    worker = market.worker()
    with capture_queries(market) as queries:
        worker.send_poll()
        for stage in (assign, close, judge, expire):
            with market.reading() as reader:
                stage.ready(reader, market.clock())
        market.drive()
        answered(market, worker, worker.request)
        worker.receive_answer()
        for _ in range(3):
            worker.turn()
    assert any("UPDATE accounts" in query for query, _ in queries), "a gradient was paid"
    plans = {query: "\n".join(planned(market, query, values)) for query, values in queries}
    for query, plan in plans.items():
        if "log_leaves" in query:  # a batch reads the records of its own job alone
            continue
        for table in ("tasks", "replicas", "workers"):
            assert f"Seq Scan on {table}" not in plan, f"{query}\n{plan}"


def planned(market: MarketFixture, query: str, values: Any) -> list[str]:
    with market.context.sessions.kw["bind"].connect() as connection:
        cursor = connection.connection.cursor()
        cursor.execute(f"EXPLAIN {query}", values)
        return [row[0] for row in cursor.fetchall()]
