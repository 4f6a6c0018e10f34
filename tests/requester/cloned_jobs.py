"""Many running jobs beside the one of a market, as copies of its rows."""

from typing import Any

from eth_utils.crypto import keccak
from sqlalchemy import insert, select

from requester.store.tables import Base, Job, Round, Task
from requester.store.work import Work
from tests.requester.market_fixture import MarketFixture


def clone_job(market: MarketFixture, count: int) -> None:
    """Copies the market's job, its rounds and tasks `count` times, each with a digest of its own."""
    with market.context.begin() as work:
        (job,), rounds, tasks = (_rows(work, table) for table in (Job, Round, Task))
        names = [f"{2**32 + number:016x}" for number in range(count)]
        jobs = [
            job
            | {
                "id": name,
                "spec_digest": f"blake3:{keccak(text=name + job['spec_digest']).hex()}",
                "chain_job": 1000 + number,
            }
            for number, name in enumerate(names)
        ]
        work.session.execute(insert(Job), jobs)
        work.session.execute(insert(Round), [row | {"job_id": name} for name in names for row in rounds])
        own = [(name, f"{name}-{place}", row) for name in names for place, row in enumerate(tasks)]
        copies = [row | {"id": task, "job_id": name, "offer_digest": keccak(text=task)} for name, task, row in own]
        work.session.execute(insert(Task), copies)


def _rows(work: Work, table: type[Base]) -> list[dict[str, Any]]:
    names = [column.key for column in table.__mapper__.column_attrs]
    return [{name: getattr(row, name) for name in names} for row in work.session.scalars(select(table))]
