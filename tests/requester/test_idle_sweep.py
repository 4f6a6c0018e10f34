"""The cost of a sweep that finds nothing to do: the same for any number of running jobs."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from sqlalchemy import event

from gradmarket.market.terms import JobState
from requester.stages import plan
from requester.store import ready_rows
from requester.store.remembered import Remembered
from requester.store.tables import Job
from tests.kit.behaviour import IDLE
from tests.lanes import FULL
from tests.requester.cloned_jobs import clone_job
from tests.requester.market_fixture import MarketFixture


@contextmanager
def statements_of(market: MarketFixture) -> Iterator[list[str]]:
    """The statements that the market's database gets within the block."""
    seen: list[str] = []
    engine = market.context.sessions.kw["bind"]

    def note(_connection: object, _cursor: object, statement: str, *_others: object) -> None:
        seen.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", note)


def _waiting(market: MarketFixture) -> list[str]:
    with market.reading() as reader:
        return [stage.TOPIC for stage in market.stages if stage.ready(reader, market.clock())]


def test_an_idle_sweep_asks_as_much_of_three_hundred_jobs_as_of_one(new_market) -> None:  # type: ignore[no-untyped-def]
    """More jobs than specs were cached for: from the 257th on each sweep validated all of them again."""
    market: MarketFixture = new_market(rounds=3)
    market.worker(IDLE)
    with statements_of(market) as of_one:
        assert _waiting(market) == []
    clone_job(market, 300)
    _waiting(market)
    with statements_of(market) as of_all:
        assert _waiting(market) == []
    assert of_all == of_one


def test_a_stage_gets_a_limited_number_of_rows_and_in_time_each_of_them() -> None:
    ids = [str(number) for number in range(1000)]
    assert ready_rows.limited(ids[: ready_rows.MOST]) == ids[: ready_rows.MOST]
    found: set[str] = set()
    while len(found) < len(ids):
        part = ready_rows.limited(ids)
        assert len(part) == len(set(part)) == ready_rows.MOST
        found.update(part)


@FULL
def test_every_job_whose_date_has_come_ends_though_more_than_one_sweep_takes(  # type: ignore[no-untyped-def]
    new_market, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_rows, "MOST", 16)
    market: MarketFixture = new_market(rounds=3, stop=[{"date": "2100-01-01T00:00:00Z"}])
    clone_job(market, ready_rows.MOST + 20)
    market.clock.now = datetime(2100, 1, 2, tzinfo=UTC).timestamp()
    with market.reading() as reader:
        assert len(plan.ready(reader, market.clock())) == ready_rows.MOST
    market.drive()
    assert {job.state for job in market.all(Job)} == {JobState.FINISHED}


def test_the_value_that_was_used_longest_ago_is_dropped_alone() -> None:
    cache = Remembered[int](most=2)
    assert [cache.get(name, lambda: 1) for name in ("a", "b", "a")] == [1, 1, 1]
    cache.remember("c", 3)
    assert [cache.peek(name) for name in ("a", "b", "c")] == [1, None, 3]


def test_a_value_that_is_cached_anew_counts_as_used() -> None:
    """A ledger that had just been made again was the next to be dropped."""
    cache = Remembered[int](most=2)
    for name in ("a", "b", "a", "c"):
        cache.remember(name, 1)
    assert [cache.peek(name) for name in ("a", "b", "c")] == [1, None, 1]
