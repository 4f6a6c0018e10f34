"""The database: migrations and models agree, a row is moved once, and uncommitted changes notify nobody."""

import threading
from collections.abc import Sequence
from pathlib import Path
from threading import Event

import pytest
from sqlalchemy import JSON, inspect, literal, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm.exc import StaleDataError

from gradmarket.market.errors import IllegalTransition
from gradmarket.market.terms import JobState, ReplicaState, TaskState
from requester import engine
from requester.context import Context
from requester.engine import StageEngine
from requester.features.many_machines.database_notifier import DatabaseNotifier
from requester.stages import close, judge
from requester.store import earned_rows, identities, schema
from requester.store.locks import lock_row
from requester.store.session import open_engine, sessions_of
from requester.store.tables import Earned, Job, Task, Wave
from requester.store.work import begin_work, open_reader
from tests.databases import BOTH, NewDatabase, Postgres
from tests.kit.schemas import downgrade_schema, list_schema_differences
from tests.patience import PATIENCE_S, wait_until

pytestmark = BOTH


def test_migrations_create_the_declared_tables_and_drop_them_again(new_database: NewDatabase, tmp_path: Path) -> None:
    database = open_engine(new_database(tmp_path))
    assert list_schema_differences(database) == []
    assert {"jobs", "replicas", "earned"} <= set(inspect(database).get_table_names())
    downgrade_schema(database)
    assert set(inspect(database).get_table_names()) <= {"alembic_version"}
    schema.upgrade_schema(database)
    assert list_schema_differences(database) == []
    with database.begin() as connection:
        connection.execute(text("DROP TABLE waves"))
        connection.execute(text("CREATE TABLE waves (task_id VARCHAR NOT NULL PRIMARY KEY, number INTEGER NOT NULL)"))
    assert ("primary_key", Wave.__table__) in list_schema_differences(database), "alembic compares no keys"
    database.dispose()


def test_names_and_json_of_a_result_are_read_as_written(new_database: NewDatabase, tmp_path: Path) -> None:
    database = open_engine(new_database(tmp_path))
    written = {"half a pair": "\ud800", "large": 2**70, "part": 0.1, "list": [None, True, "é"]}
    with database.connect() as connection:
        row = connection.execute(text("SELECT 1 AS first, 'a' AS second")).one()
        assert row._asdict() == {"first": 1, "second": "a"}
        assert connection.scalar(select(literal(written, JSON))) == written
    database.dispose()


def test_a_row_that_somebody_else_moved_is_not_moved_again(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    with open_reader(market.context.sessions) as stale:
        seen = stale.session.scalars(select(Task)).one()
    with begin_work(market.context.sessions) as first:
        first.move(first.get_one(Task, seen.id), TaskState.COMMITTING)
    assert seen.state == TaskState.OPEN
    with pytest.raises(StaleDataError):
        _cancel(market.context, seen)
    assert (market.task().state, market.task().reason) == (TaskState.COMMITTING, "")


def _open_again(context: Context, tasks: Sequence[Task]) -> None:
    with context.begin() as work:
        work.add(*tasks)
        work.move_many(tasks, TaskState.OPEN, wave=1)


def _cancel(context: Context, task: Task) -> None:
    with context.begin() as work:
        work.add(task)
        work.move(task, TaskState.CANCELLED, reason="too late")


def test_several_rows_move_together_each_to_its_own_values_or_none_does(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(tasks_per_round=3)
    due = {task.id: at for task, at in zip(market.all(Task), (1.5, None, 3.5), strict=True)}
    with market.context.begin() as work:
        for task in work.session.scalars(select(Task)).all():
            work.move(task, TaskState.COMMITTING, due_at=due[task.id], root=None)
    assert {task.id: task.due_at for task in market.all(Task)} == due
    with open_reader(market.context.sessions) as stale:
        seen = stale.session.scalars(select(Task)).all()
    gone = seen[1].id
    with market.context.begin() as work:
        work.move(work.get_one(Task, gone), TaskState.CANCELLED)
    with pytest.raises(StaleDataError):
        _open_again(market.context, seen)
    states = {task.id: (task.state, task.wave) for task in market.all(Task)}
    assert states.pop(gone) == (TaskState.CANCELLED, 0)
    assert set(states.values()) == {(TaskState.COMMITTING, 0)}


def test_a_claim_that_somebody_else_made_is_not_made_again(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    with open_reader(market.context.sessions) as stale:
        seen = stale.session.scalars(select(Job)).one()
    with begin_work(market.context.sessions) as first:
        assert first.set_state_now(first.get_one(Job, seen.id), JobState.PAUSED)
    with begin_work(market.context.sessions) as second:
        second.add(seen)
        assert not second.set_state_now(seen, JobState.FINISHED, reason="too late")
    assert [(job.state, job.reason) for job in market.all(Job)] == [(JobState.PAUSED, "")]


def test_a_row_does_not_go_where_its_table_does_not_lead(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    with pytest.raises(IllegalTransition), market.context.begin() as work:
        work.move(work.session.scalars(select(Task)).one(), TaskState.FINAL)
    assert market.task().state == TaskState.OPEN


def test_two_sessions_cannot_both_write(new_market) -> None:  # type: ignore[no-untyped-def]
    """A hundred additions from two threads are a hundred: a value read under its lock does not grow stale."""
    market = new_market()

    def add() -> None:
        for _ in range(50):
            with market.context.begin() as work:
                lock_row(work, Job, market.job).refunded += 1

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert market.the_job().refunded == 100


def test_reading_waits_for_no_writer(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    with market.context.begin() as writing:
        writing.get_one(Job, market.job).reason = "not committed"
        writing.flush()
        assert market.the_job().reason == ""
    assert market.the_job().reason == "not committed"


def test_nobody_earns_twice_for_one_replica(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    worker = market.worker()
    market.worker(), market.worker()
    market.play()
    (paid,) = market.all(Earned, Earned.worker == worker.address)
    account, task, replica = market.account(worker), market.task(), market.replica(worker)
    with pytest.raises(IntegrityError), market.context.begin() as work:
        earned_rows.record_earning(work, account, task, replica, paid.digest, market.clock())
    assert market.account(worker).earned == paid.units


def _past_the_first_connection(context: Context, notified: Event) -> None:
    """A notifier that connects to its database wakes everybody once."""
    assert not isinstance(context.notifier, DatabaseNotifier) or notified.wait(PATIENCE_S)
    notified.clear()


def test_no_ring_before_the_commit(new_market) -> None:  # type: ignore[no-untyped-def]
    context = new_market().context
    with context.notifier.listen(["topic"]) as notified:
        _past_the_first_connection(context, notified)
        with context.begin() as work:
            work.notify("topic", "another")
            assert not notified.is_set()
        assert notified.is_set()
        notified.clear()
        with context.begin() as work:
            work.notify("another")
        assert not notified.is_set()


def test_no_ring_for_what_was_rolled_back(new_market) -> None:  # type: ignore[no-untyped-def]
    context = new_market().context

    def change_its_mind() -> None:
        with context.begin() as work:
            work.notify("topic")
            raise KeyError("never mind")

    with context.notifier.listen(["topic"]) as notified:
        _past_the_first_connection(context, notified)
        with pytest.raises(KeyError):
            change_its_mind()
        assert not notified.is_set()


def test_a_ring_between_looking_and_waiting_is_not_lost(new_market) -> None:  # type: ignore[no-untyped-def]
    context = new_market().context
    with context.notifier.listen(["topic"]) as notified:
        notified.clear()
        with context.begin() as work:
            work.notify("topic")
        assert notified.is_set()


def test_a_stage_that_fails_on_one_row_is_logged_and_tried_again(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()

    class Failing:
        TOPIC = "failing"

        def ready(self, _session, _now: float) -> list[str]:  # type: ignore[no-untyped-def]
            return ["bad", "good"]

        def run(self, _context, row_id: str) -> float | None:  # type: ignore[no-untyped-def]
            if row_id == "bad":
                raise ValueError("a bad row")
            return None

    assert engine.sweep_once(market.context, Failing()) == (market.settings.sweep_s, True)


def test_a_stage_that_finds_its_row_already_moved_changes_nothing(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    for _ in range(3):
        market.worker()
    market.play()
    task = market.task()
    for stage in (close, judge):
        stage.run(market.context, task.id)
    assert market.task().state == task.state == TaskState.FINAL


def test_the_engine_runs_a_job_in_its_threads(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=3, settings={"sweep_s": 0.05})
    for _ in range(3):
        market.worker()
    with StageEngine(market.context, market.stages):
        market.driven = True

        def live() -> None:
            market.take_turns()
            market.clock.now += 0.05

        wait_until(lambda: market.state() == JobState.FINISHED, meanwhile=live)
    assert market.state() == JobState.FINISHED
    assert {replica.state for replica in market.replicas()} <= {ReplicaState.PAYABLE, ReplicaState.TOO_LATE}


def test_a_database_in_sql_ascii_holds_every_text(postgres: Postgres, tmp_path: Path) -> None:
    name = "ascii_only"
    postgres.run(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    database = open_engine(postgres.url(name))
    try:
        schema.upgrade_schema(database)
        sessions = sessions_of(database)
        with begin_work(sessions) as work:
            identities.store_token(work, "token", "requester", "Zoë 東京", None, 0.0)
        with open_reader(sessions) as reader:
            found = identities.find_token(reader, "token", 0.0)
        assert found is not None
        assert found.subject == "Zoë 東京"
    finally:
        database.dispose()
        postgres.drop(postgres.url(name))
