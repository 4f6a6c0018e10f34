"""Figures of a page that are counted over many rows, cached for all viewers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from fastapi import Request

from gradmarket.market.money import TokenUnit
from requester.api.job_routes import mark_standing
from requester.api.job_views import Standing, read_standing
from requester.context import Context
from requester.features.answer_cache import Recent
from requester.features.records import worker_figures
from requester.store import jobs
from requester.store.tables import Job, Round
from requester.store.work import RowReader

VIEWERS: Final = "viewers"
"""All viewers count as one source: a part rendered for one is shown to all."""
PAY_S: Final = 30
"""Seconds for which an expected pay is shown."""


@dataclass(frozen=True, slots=True)
class PageMeasures:
    """`pay`: an hour's expected earnings of one more worker, as people write it; empty where nobody was paid lately.

    `newest`: the newest closed round.
    """

    standing: Standing
    pay: str
    newest: Round | None


def load_page_measures(
    context: Context, reader: RowReader, request: Request, shown: Sequence[Job]
) -> dict[str, PageMeasures]:
    newest = jobs.newest_closed(reader, [job.id for job in shown])
    standings: Recent[Standing] = request.app.state.standings
    pays: Recent[str] = request.app.state.pays
    now, token = context.clock(), TokenUnit.of(context.chain_facts)

    def estimate_pay(job: Job) -> str:
        rate = worker_figures.estimate_hourly(reader, job.id, now)
        return "" if rate is None else token.about(int(rate * int(job.unit)))

    measures = dict[str, PageMeasures]()
    for job in shown:
        last = newest.get(job.id)
        make = partial(read_standing, reader, job, now)
        standing = standings.get(job.id, mark_standing(job, last), VIEWERS, make)
        pay = pays.get(job.id, str(int(now) // PAY_S), VIEWERS, partial(estimate_pay, job))
        measures[job.id] = PageMeasures(standing, pay, last)
    return measures
