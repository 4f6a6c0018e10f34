"""The books of coverage, as the job's readers get them."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from gradmarket.market.job import JobSpec
from gradmarket.market.terms import JobState
from requester.app import create_app
from requester.features import coverage
from requester.store import jobs
from requester.store.tables import Job
from tests.features.late.test_late_tasks import LATE, slow_one
from tests.lanes import FULL
from tests.requester.market_fixture import MarketFixture

NewMarket = Callable[..., MarketFixture]
PARTITIONS = (("one", "two"), (2, 2))


@pytest.fixture
def market(new_market: NewMarket) -> MarketFixture:
    made = new_market(rounds=4, **LATE)
    store_partitions(made)
    return made


def store_partitions(market: MarketFixture) -> None:
    """The fixture's dataset is not stored: its partitions, as they would have been read."""
    with market.context.begin() as work:
        job = work.get_one(Job, market.job)
        job.visibility, publication = "public", jobs.find_publication(job)
    assert publication is not None
    coverage._PARTITIONS.remember(publication.manifest, PARTITIONS)


def fetch_coverage(market: MarketFixture, status: int = 200, **parameters: Any) -> dict[str, Any]:
    with TestClient(create_app(market.context, nullcontext)) as client:
        answer: httpx.Response = client.get(f"/v1/jobs/{market.job}/coverage", params=parameters)
    assert answer.status_code == status, answer.text
    return dict(answer.json())


def test_coverage_counts_used_late_and_waiting_partitions_without_a_gap(market: MarketFixture) -> None:
    fast, slow, _task = slow_one(market)
    books = fetch_coverage(market)
    assert books["counts"] == {"used": 2, "late": 0, "waiting": 3}
    assert [(one["name"], one["tasks"], one["uses"]) for one in books["items"]] == [("one", 1, 0.5), ("two", 1, 0.5)]
    assert books["epochs"] == 0
    market.until(lambda: len(market.rounds()) == 3, *fast, slow)
    assert fetch_coverage(market)["counts"]["late"] == 1
    market.play()
    assert market.state() == JobState.FINISHED
    books = fetch_coverage(market)
    used = books["counts"]["used"]
    assert books["counts"] == {"used": used, "late": books["counts"]["late"], "waiting": 0}
    assert sum(one["tasks"] for one in books["items"]) == used
    assert books["epochs"] == used // 4
    assert books["worst_share"] >= (used // 2) / (used / 2)


@FULL
def test_the_books_are_read_page_by_page(market: MarketFixture) -> None:
    first = fetch_coverage(market, limit=1)
    second = fetch_coverage(market, limit=1, cursor=first["next"])
    assert [one["name"] for page in (first, second) for one in page["items"]] == ["one", "two"]
    assert second["next"] is None
    for cursor in ("WyJhIl0", "Wy0xXQ", "WzEuNV0", "nonsense"):
        fetch_coverage(market, status=422, cursor=cursor)


def test_coverage_needs_the_right_to_read_the_job(market: MarketFixture) -> None:
    with market.context.begin() as work:
        work.get_one(Job, market.job).visibility = "workers"
    assert "items" not in fetch_coverage(market, status=401)


@FULL
def test_a_job_that_takes_its_rows_by_rounds_has_uses_and_no_epochs(new_market: NewMarket) -> None:
    market = new_market(rounds=2, tasks_per_round=2)
    store_partitions(market)
    for _ in range(3):
        market.worker()
    market.play()
    books = fetch_coverage(market)
    assert (books["counts"], books["epochs"], books["worst_share"]) == (None, None, 1.0)
    assert [one["tasks"] for one in books["items"]] == [2, 2]
    assert JobSpec.model_validate(market.the_job().spec).sampling == "rounds"
