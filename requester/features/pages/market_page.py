"""What the first page shows: the market's sums, its jobs with expected pay, and the workers that are present."""

from dataclasses import dataclass
from typing import Final

from fastapi import Request

from gradmarket.market.money import TokenUnit
from requester.context import Context
from requester.features.pages.measured import PageMeasures, load_page_measures
from requester.store import jobs, overview, progress
from requester.store.tables import Job
from requester.store.work import RowReader

JOBS: Final = 50


@dataclass(frozen=True, slots=True)
class JobLine:
    """`pay`: expected pay an hour of one more worker; `loss`: after the newest closed round."""

    id: str
    name: str
    state: str
    price: str
    pay: str
    done: int
    rounds: int
    loss: float | None
    reason: str
    replicas: int
    over: bool


@dataclass(frozen=True, slots=True)
class MarketPage:
    paid: str
    totals: overview.MarketTotals
    classes: list[tuple[str, int]]
    jobs: list[JobLine]
    trouble: str
    more: int
    """Jobs that are not shown."""


def build_market_page(context: Context, reader: RowReader, request: Request) -> MarketPage:
    shown = overview.newest_jobs(reader, JOBS)
    known, token = load_page_measures(context, reader, request, shown), TokenUnit.of(context.chain_facts)
    totals = overview.load_market_totals(reader)
    return MarketPage(
        paid=token.text(totals.paid),
        totals=totals,
        classes=[(name, count) for name, count in overview.count_present_classes(reader, context.clock())],
        jobs=[_build_job_line(token, job, known[job.id]) for job in shown],
        trouble=progress.chain_trouble(reader),
        more=overview.count_jobs(reader) - JOBS if len(shown) == JOBS else 0,
    )


def _build_job_line(token: TokenUnit, job: Job, known: PageMeasures) -> JobLine:
    spec, newest = jobs.load_spec(job), known.newest
    return JobLine(
        id=job.id,
        name=spec.name,
        state=job.state,
        price=token.text(job.price * int(job.unit)),
        pay=known.pay,
        done=newest.number + 1 if newest else 0,
        rounds=spec.rounds,
        loss=newest.loss if newest else None,
        reason=known.standing.reason,
        replicas=spec.replication.replicas,
        over=job.ended_at is not None,
    )
