"""What the first page shows: the market's sums, its jobs with measured pay, and the workers that are present."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gradmarket.market.money import TokenUnit
from gradmarket.market.terms import JobState
from gradmarket.requester.context import Context
from gradmarket.requester.page.job_page import hourly
from gradmarket.requester.store import jobs, overview, progress
from gradmarket.requester.store.tables import Job
from gradmarket.requester.store.work import RowReader

JOBS: Final = 50


@dataclass(frozen=True, slots=True)
class JobLine:
    """`pay`: measured pay an hour; `loss`: after the newest closed round."""

    id: str
    name: str
    state: str
    price: str
    pay: str
    round: int
    rounds: int
    loss: float | None
    reason: str
    replicas: int


@dataclass(frozen=True, slots=True)
class MarketPage:
    paid: str
    totals: overview.MarketTotals
    classes: list[tuple[str, int]]
    jobs: list[JobLine]
    trouble: str


def page(context: Context, reader: RowReader) -> MarketPage:
    shown = overview.newest_jobs(reader, JOBS)
    totals, token = overview.totals(reader), TokenUnit.of(context.chain_facts)
    return MarketPage(
        paid=token.text(totals.paid),
        totals=totals,
        classes=[(name, count) for name, count in overview.classes(reader, context.clock())],
        jobs=_lines(context, reader, shown),
        trouble=progress.chain_trouble(reader),
    )


def _lines(context: Context, reader: RowReader, shown: Sequence[Job]) -> list[JobLine]:
    pay, newest = hourly(context, reader, shown), jobs.newest_closed(reader, [job.id for job in shown])
    return [_line(context, reader, job, pay[job.id], newest.get(job.id)) for job in shown]


def _line(context: Context, reader: RowReader, job: Job, pay: str, newest: object) -> JobLine:
    spec, token = jobs.spec(job), TokenUnit.of(context.chain_facts)
    number, loss = getattr(newest, "number", -1), getattr(newest, "loss", None)
    waiting = job.state in (JobState.RUNNING, JobState.AWAITING_FUNDS)
    return JobLine(
        id=job.id,
        name=spec.name,
        state=job.state,
        price=token.text(job.price * int(job.unit)),
        pay=pay,
        round=number + 1,
        rounds=spec.rounds,
        loss=loss,
        reason=progress.why_waiting(reader, job, context.clock()) if waiting else job.reason,
        replicas=spec.replication.replicas,
    )
