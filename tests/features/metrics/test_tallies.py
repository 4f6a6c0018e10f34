"""The metrics of the rows against the rows; the log of the stages, with its ids and without secrets."""

import contextlib
import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import structlog
from sqlalchemy import event, text

from gradmarket.market.terms import JobState, ReplicaState, TaskState
from requester import logs
from requester.context import Context
from requester.engine import Stage, run_once, stages_with
from requester.features import FEATURES
from requester.features.metrics import StageWaits
from requester.features.metrics.tallies import collect_metrics, compute_stage_lags
from requester.store.tables import Wave
from requester.store.work import record_event
from tests.kit.behaviour import IDLE, NOISE
from tests.requester.market_fixture import PRICE, MarketFixture

Measured = dict[tuple[str, str], float]


def measured(market: MarketFixture) -> Measured:
    """(name, value of its only label or empty) -> value."""
    with market.reading() as reader:
        return {
            (sample.name, next(iter(sample.labels.values()), "")): sample.value
            for metric in collect_metrics(reader, market.clock())
            for sample in metric.samples
        }


def played(new_market, **spec) -> MarketFixture:  # type: ignore[no-untyped-def]
    market: MarketFixture = new_market(rounds=2, **spec)
    market.worker(NOISE), market.worker(), market.worker()
    market.play()
    assert market.state() == JobState.FINISHED
    return market


def test_the_tallies_equal_the_counts_of_the_rows(new_market) -> None:  # type: ignore[no-untyped-def]
    market = played(new_market)
    told = measured(market)
    assert told["gradmarket_leases_total", ""] == len(market.replicas()) == 6
    assert told["gradmarket_verdicts_total", "accepted"] == 4
    assert told["gradmarket_verdicts_total", "rejected"] == 2
    assert told["gradmarket_waves_total", ""] == len(market.all(Wave)) == 2
    assert told["gradmarket_earned_total", ""] == sum(market.earned().values()) == 4 * PRICE
    assert told["gradmarket_settled_total", ""] == 0
    assert told["gradmarket_workers", ""] == 3
    assert told["gradmarket_jobs", "finished"] == 1
    for state in {replica.state for replica in market.replicas()}:
        assert told["gradmarket_replicas", state] == len([r for r in market.replicas() if r.state == state])
    assert ("gradmarket_escrow_left", market.job) not in told, "an ended job has no line of its own"


def test_a_restart_loses_no_count(new_market) -> None:  # type: ignore[no-untyped-def]
    market = played(new_market)
    before = measured(market)
    market.crash()
    assert measured(market) == before


def test_escrow_left_falls_by_what_is_earned(new_market) -> None:  # type: ignore[no-untyped-def]
    market: MarketFixture = new_market(rounds=3)
    market.worker(), market.worker(), market.worker()
    before = measured(market)["gradmarket_escrow_left", market.job]
    market.until(lambda: market.earned())
    assert measured(market)["gradmarket_escrow_left", market.job] == before - sum(market.earned().values())


def test_a_stage_that_does_not_run_lags(new_market) -> None:  # type: ignore[no-untyped-def]
    market: MarketFixture = new_market(rounds=1)
    for behaviour in (IDLE, IDLE, IDLE):
        market.worker(behaviour)
    market.gather()
    (task,) = market.tasks()
    assert task.state == TaskState.COMMITTING
    assert measured(market)["gradmarket_stage_lag_seconds", "expire"] == 0
    until = max(replica.lease_until for replica in market.replicas())
    market.clock.now = until + 30
    assert measured(market)["gradmarket_stage_lag_seconds", "expire"] == 30
    market.drive()
    assert measured(market)["gradmarket_stage_lag_seconds", "expire"] == 0
    assert {replica.state for replica in market.replicas()} == {ReplicaState.EXPIRED}


def test_no_tally_reads_a_table_that_grows_but_by_an_index(new_market) -> None:  # type: ignore[no-untyped-def]
    """Jobs, accounts and workers are few; the others grow with every task."""
    market = played(new_market)
    asked: list[tuple[str, object]] = []
    with market.reading() as reader:
        connection = reader.session.connection()
        if connection.dialect.name != "sqlite":
            pytest.skip("a planner that knows the tables are small reads them whole")
        event.listen(connection, "before_cursor_execute", lambda *a: asked.append((a[2], a[3])))
        list(collect_metrics(reader, market.clock()))
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


class CapturedLog:
    """The lines of a log, as JSON."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    def lines(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def captured_log() -> Iterator[CapturedLog]:
    handlers, level = logging.root.handlers[:], logging.root.level
    made = CapturedLog()
    logs.configure_logging(as_json=True, level="DEBUG", to=made.stream)
    yield made
    structlog.reset_defaults()
    logging.root.handlers, logging.root.level = handlers, level


def test_every_line_of_a_stage_has_its_ids_and_none_a_signature(new_market, captured_log: CapturedLog) -> None:  # type: ignore[no-untyped-def]
    market: MarketFixture = new_market(rounds=2)

    market.stages = tuple(Driven(stage) for stage in market.stages)
    workers = [market.worker(NOISE), market.worker(), market.worker()]
    market.play()
    lines = captured_log.lines()
    of_stages = [line for line in lines if "stage" in line]
    assert {line["stage"] for line in of_stages} >= {"assign", "aggregate"}
    assert all(line["job"] == market.job for line in of_stages)
    assert {line["replica"] for line in lines if line["event"] == "rejected"} == {
        replica.id for replica in market.replicas(workers[0])
    }
    whole = "\n".join(json.dumps(line) for line in lines)
    secret = [row.signature for row in market.replicas()] + [row.salt for row in market.replicas()]
    secret += [row.verdict_signature for row in market.replicas()] + [market.the_job().secret]
    assert len([value for value in secret if value]) > 10
    assert [value for value in secret if value and value.hex() in whole] == []


def test_events_of_a_rolled_back_transaction_are_not_logged(new_market, captured_log: CapturedLog) -> None:  # type: ignore[no-untyped-def]
    market: MarketFixture = new_market(rounds=1)
    with contextlib.suppress(ZeroDivisionError), market.context.begin() as work:
        record_event(work, market.job, "never", market.clock())
        raise ZeroDivisionError
    with market.context.begin() as work:
        record_event(work, market.job, "indeed", market.clock())
    assert [line["event"] for line in captured_log.lines() if line["event"] in ("never", "indeed")] == ["indeed"]


def test_a_failing_stage_is_logged_counted_and_tried_again(new_market, captured_log: CapturedLog) -> None:  # type: ignore[no-untyped-def]
    market: MarketFixture = new_market(rounds=1)

    class Broken:
        TOPIC = "broken"

        def ready(self, session: object, now: float) -> list[str]:
            return [market.job]

        def run(self, context: object, row_id: str) -> float | None:
            with market.context.begin() as work:
                work.session.execute(text("SELECT :signature FROM nowhere"), {"signature": "0x" + "ab" * 65})
            return None

    assert run_once(market.context, Broken(), market.job) == market.settings.sweep_s
    (line,) = [line for line in captured_log.lines() if line["event"] == "stage failed"]
    assert (line["stage"], line["job"], line["level"]) == ("broken", market.job, "error")
    assert "nowhere" in line["exception"]
    assert "abab" not in line["exception"]
    told_now = market.context.meters.registry.get_sample_value("gradmarket_stage_failures_total", {"stage": "broken"})
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
    assert list(logs.hide_secrets(None, "info", given).values()) == [left]


def test_a_stage_whose_rows_wait_lags_whichever_it_is(new_market) -> None:  # type: ignore[no-untyped-def]
    """The alarm of any stage had no line of audit, rollback, unmask, plan and the features' stages."""
    market = new_market(rounds=2, stop=[{"date": "2100-01-01T00:00:00Z"}])
    waits = StageWaits(market.context)

    def lags_now() -> dict[str, float]:
        with market.reading() as reader:
            return compute_stage_lags(reader, market.clock()) | waits.lags(reader, market.clock())

    untimed = {"settle", "sweep"}
    assert lags_now().keys() | untimed >= stages_with(FEATURES).keys()
    market.clock.now = datetime(2100, 1, 2, tzinfo=UTC).timestamp()
    assert lags_now()["plan"] == 0.0
    market.clock.now += 90.0
    assert lags_now()["plan"] == 90.0
    market.drive()
    assert lags_now()["plan"] == 0.0
