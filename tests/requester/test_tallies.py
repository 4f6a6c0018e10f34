"""The metrics of the rows against the rows; the log of the stages, with its ids and without secrets."""

import contextlib
import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from market_floor import PRICE, Floor
from market_workers import IDLE, NOISE
from sqlalchemy import event, text

from gradmarket.market.terms import JobState, ReplicaState, TaskState
from gradmarket.requester import logs
from gradmarket.requester.context import Context
from gradmarket.requester.engine import run_once
from gradmarket.requester.narration import narrate
from gradmarket.requester.stages.stage import Stage
from gradmarket.requester.store.events import tell
from gradmarket.requester.store.tables import Wave
from gradmarket.requester.tallies import tallies

Measured = dict[tuple[str, str], float]


def measured(floor: Floor) -> Measured:
    """(name, value of its only label or empty) -> value."""
    with floor.reading() as session:
        return {
            (sample.name, next(iter(sample.labels.values()), "")): sample.value
            for metric in tallies(session, floor.clock())
            for sample in metric.samples
        }


def played(new_floor, **spec) -> Floor:  # type: ignore[no-untyped-def]
    floor: Floor = new_floor(rounds=2, **spec)
    floor.worker(NOISE), floor.worker(), floor.worker()
    floor.play()
    assert floor.state() == JobState.FINISHED
    return floor


def test_the_tallies_are_what_the_rows_say(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = played(new_floor)
    told = measured(floor)
    assert told["gradmarket_leases_total", ""] == len(floor.replicas()) == 6
    assert told["gradmarket_verdicts_total", "accepted"] == 4
    assert told["gradmarket_verdicts_total", "rejected"] == 2
    assert told["gradmarket_waves_total", ""] == len(floor.all(Wave)) == 2
    assert told["gradmarket_earned_total", ""] == sum(floor.earned().values()) == 4 * PRICE
    assert told["gradmarket_settled_total", ""] == 0
    assert told["gradmarket_workers", ""] == 3
    assert told["gradmarket_jobs", "finished"] == 1
    for state in {replica.state for replica in floor.replicas()}:
        assert told["gradmarket_replicas", state] == len([r for r in floor.replicas() if r.state == state])
    assert ("gradmarket_escrow_left", floor.job) not in told, "an ended job has no line of its own"


def test_a_restart_loses_no_count(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = played(new_floor)
    before = measured(floor)
    floor.crash()
    assert measured(floor) == before


def test_escrow_left_falls_by_what_is_earned(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor: Floor = new_floor(rounds=3)
    floor.worker(), floor.worker(), floor.worker()
    before = measured(floor)["gradmarket_escrow_left", floor.job]
    floor.until(lambda: floor.earned())
    assert measured(floor)["gradmarket_escrow_left", floor.job] == before - sum(floor.earned().values())


def test_a_stage_that_does_not_run_lags(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor: Floor = new_floor(rounds=1)
    for behaviour in (IDLE, IDLE, IDLE):
        floor.worker(behaviour)
    floor.gather()
    (task,) = floor.tasks()
    assert task.state == TaskState.COMMITTING
    assert measured(floor)["gradmarket_stage_lag_seconds", "expire"] == 0
    until = max(replica.lease_until for replica in floor.replicas())
    floor.clock.now = until + 30
    assert measured(floor)["gradmarket_stage_lag_seconds", "expire"] == 30
    floor.drive()
    assert measured(floor)["gradmarket_stage_lag_seconds", "expire"] == 0
    assert {replica.state for replica in floor.replicas()} == {ReplicaState.EXPIRED}


def test_no_tally_reads_a_table_that_grows_but_by_an_index(new_floor) -> None:  # type: ignore[no-untyped-def]
    """Jobs, accounts and workers are few; the others grow with every task."""
    floor = played(new_floor)
    asked: list[tuple[str, object]] = []
    with floor.reading() as session:
        connection = session.connection()
        if connection.dialect.name != "sqlite":
            pytest.skip("a planner that knows the tables are small reads them whole")
        event.listen(connection, "before_cursor_execute", lambda *a: asked.append((a[2], a[3])))
        list(tallies(session, floor.clock()))
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", given).all() for sql, given in asked[:]]
    steps = [row[3] for plan in plans for row in plan]
    whole = [step for step in steps if step.startswith("SCAN ") and "INDEX" not in step]
    assert {step.split()[1] for step in whole} <= {"jobs", "accounts", "workers", "batches", "transactions"}, steps


class Driven:
    """A stage as the engine runs it."""

    def __init__(self, stage: Stage) -> None:
        self.TOPIC, self.ready, self._stage = stage.TOPIC, stage.ready, stage

    def run(self, context: Context, row_id: str) -> float | None:
        return run_once(context, self._stage, row_id)


class Told:
    """The lines of a log, as JSON."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    def lines(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def told() -> Iterator[Told]:
    handlers, level = logging.root.handlers[:], logging.root.level
    made = Told()
    logs.configure(as_json=True, level="DEBUG", to=made.stream)
    yield made
    structlog.reset_defaults()
    logging.root.handlers, logging.root.level = handlers, level


def test_every_line_of_a_stage_has_its_ids_and_none_a_signature(new_floor, told: Told) -> None:  # type: ignore[no-untyped-def]
    floor: Floor = new_floor(rounds=2)
    narrate(floor.context.sessions)

    floor.stages = tuple(Driven(stage) for stage in floor.stages)
    workers = [floor.worker(NOISE), floor.worker(), floor.worker()]
    floor.play()
    lines = told.lines()
    of_stages = [line for line in lines if "stage" in line]
    assert {line["stage"] for line in of_stages} >= {"plan", "assign", "aggregate"}
    assert all(line["job"] == floor.job for line in of_stages)
    assert {line["replica"] for line in lines if line["event"] == "rejected"} == {
        replica.id for replica in floor.replicas(workers[0])
    }
    whole = "\n".join(json.dumps(line) for line in lines)
    secret = [row.signature for row in floor.replicas()] + [row.salt for row in floor.replicas()]
    secret += [row.verdict_signature for row in floor.replicas()] + [floor.the_job().secret]
    assert len([value for value in secret if value]) > 10
    assert [value for value in secret if value and value.hex() in whole] == []


def test_what_is_rolled_back_is_not_told(new_floor, told: Told) -> None:  # type: ignore[no-untyped-def]
    floor: Floor = new_floor(rounds=1)
    narrate(floor.context.sessions)
    with contextlib.suppress(ZeroDivisionError), floor.context.begin() as session:
        tell(session, floor.job, "never", floor.clock())
        raise ZeroDivisionError
    with floor.context.begin() as session:
        tell(session, floor.job, "indeed", floor.clock())
    assert [line["event"] for line in told.lines() if line["event"] in ("never", "indeed")] == ["indeed"]


def test_a_stage_that_fails_is_told_counted_and_tried_again(new_floor, told: Told) -> None:  # type: ignore[no-untyped-def]
    floor: Floor = new_floor(rounds=1)

    class Broken:
        TOPIC = "broken"

        def ready(self, session: object, now: float) -> list[str]:
            return [floor.job]

        def run(self, context: object, row_id: str) -> float | None:
            with floor.context.begin() as session:
                session.execute(text("SELECT :signature FROM nowhere"), {"signature": "0x" + "ab" * 65})
            return None

    assert run_once(floor.context, Broken(), floor.job) == floor.settings.sweep_s
    (line,) = [line for line in told.lines() if line["event"] == "stage failed"]
    assert (line["stage"], line["job"], line["level"]) == ("broken", floor.job, "error")
    assert "nowhere" in line["exception"]
    assert "abab" not in line["exception"]
    told_now = floor.context.meters.registry.get_sample_value("gradmarket_stage_failures_total", {"stage": "broken"})
    assert told_now == 1


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"token": "abc"}, logs.HIDDEN),
        ({"api_key": "abc"}, logs.HIDDEN),
        ({"Authorization": "Bearer abc"}, logs.HIDDEN),
        ({"salt": b"abc"}, logs.HIDDEN),
        ({"header": "Bearer abc.def"}, f"Bearer {logs.HIDDEN}"),
        ({"url": "postgresql://user:word@host/db"}, f"postgresql://{logs.HIDDEN}@host/db"),
        ({"error": "Max retries exceeded with url: /v3/abc (x)"}, f"Max retries exceeded with url: {logs.HIDDEN} (x)"),
        ({"told": {"signature": "abc", "round": 1}}, {"signature": logs.HIDDEN, "round": 1}),
        ({"told": ["0x" + "ab" * 65]}, [logs.HIDDEN]),
        ({"worker": "0x" + "ab" * 20}, "0x" + "ab" * 20),
        ({"tx": "0x" + "ab" * 32}, "0x" + "ab" * 32),
    ],
)
def test_secrets_are_taken_out_of_a_line(given: dict[str, object], left: object) -> None:
    assert list(logs.hide(None, "info", given).values()) == [left]
