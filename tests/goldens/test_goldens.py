"""API, database and transactions are those that are committed; `python -m tests.goldens` writes them anew."""

from pathlib import Path

import pytest
from sqlalchemy import Select, func, select

from requester.store.session import open_engine
from requester.store.tables import Job, Task
from tests.databases import NewDatabase
from tests.goldens import read_golden
from tests.goldens.__main__ import describe_api
from tests.goldens.reflected import reflect_schema
from tests.goldens.traces import JOBS, TransactionTrace, trace_job
from tests.requester.conftest import NewMarket


@pytest.mark.parametrize("job", JOBS)
def test_a_jobs_transactions_are_the_committed_ones(job: str, tmp_path: Path) -> None:
    assert trace_job(job, tmp_path) == read_golden(f"transactions_{job}")


def test_the_api_is_described_as_committed(tmp_path: Path) -> None:
    assert describe_api(tmp_path) == read_golden("openapi")


def test_the_database_has_the_committed_schema(new_database: NewDatabase, tmp_path: Path) -> None:
    engine = open_engine(new_database(tmp_path))
    assert reflect_schema(engine) == read_golden(f"schema_{engine.dialect.name}")
    engine.dispose()


def test_another_order_of_statements_is_another_trace(new_market: NewMarket) -> None:
    market = new_market()

    def traced(*asked: Select[tuple[int]]) -> list[str]:
        trace = TransactionTrace()
        with trace.recording(market), market.context.begin() as work:
            for statement in asked:
                work.session.execute(statement)
            work.one_at_a_time(f"events of {market.job}")
            work.notify(f"job {market.job}")
        return trace.lines

    jobs, tasks = (select(func.count()).select_from(table) for table in (Job, Task))
    (one, told), (other, _) = traced(jobs, tasks), traced(tasks, jobs)
    assert [line for line in one.split("; ") if "count(" in line or line in ("locks events of ID", "commit")] == [
        *(f"SELECT count(*) AS count_1 FROM {name}" for name in ("jobs", "tasks")),
        "locks events of ID",
        "commit",
    ]
    assert sorted(one.split("; ")) == sorted(other.split("; "))
    assert (told, one == other) == ("notifies job ID", False)
