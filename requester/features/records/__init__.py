"""Public records of a job: tasks with their evidence, verdicts, payments, counts, and its workers."""

from fastapi import APIRouter, Request
from starlette.datastructures import State

from gradmarket.market import signing
from gradmarket.market.errors import NotFound
from gradmarket.market.features.records import PaymentView
from gradmarket.market.terms import ReplicaState
from gradmarket.market.views.job_views import Stats
from gradmarket.market.views.payment_views import StakeView, WorkerView
from gradmarket.market.views.service_views import Page
from requester.api.auth_routes import Here
from requester.api.job_routes import NO_JOB, JobPath, job_or_404
from requester.api.job_views import format_amount, format_time
from requester.api.paging import Cursor, Limit, load_page_rows
from requester.api.problems import describe_problems
from requester.context import Context
from requester.feature import Feature
from requester.features import reputation as reputations
from requester.features.answer_cache import CachedAnswers, Recent, Source
from requester.features.records import earning_routes, evidence_routes, job_counts, record_lists, worker_figures
from requester.features.records.earning_routes import Address
from requester.features.records.job_counts import traffic_of
from requester.features.records.record_views import (
    list_strikes,
    payment_view,
    reputation_view,
    settlement_view,
    strikes_view,
)
from requester.features.records.worker_figures import History
from requester.store import disclosure, jobs, progress, workers
from requester.store.tables import Earned, Worker
from requester.store.work import RowReader

router = APIRouter(prefix="/v1", tags=["payments"])


@router.get(
    "/jobs/{job_id}/payments",
    operation_id="list_payments",
    responses=NO_JOB,
    summary="One line for every gradient that earned",
)
def payments(context: Here, job_id: JobPath, limit: Limit, cursor: Cursor = None) -> Page[PaymentView]:
    with context.reading() as reader:
        job = job_or_404(reader, job_id)
        disclosed = disclosure.of_job(reader, job)
        shown, more = load_page_rows(reader, record_lists.select_payments(job_id), [Earned.id], cursor, limit)
        return Page(items=[payment_view(row, job.unit, disclosed.of(row)) for row in shown], next=more)


@router.get(
    "/jobs/{job_id}/stats",
    operation_id="get_stats",
    responses=NO_JOB,
    summary="Counts of rounds, tasks, replicas, bytes and settlements",
)
async def stats(context: Here, request: Request, source: Source, job_id: JobPath) -> Stats:
    kept: CachedAnswers[Stats] = request.app.state.stats
    return await kept.get(job_id, source, lambda: _load_stats(context, job_id))


def _load_stats(context: Context, job_id: str) -> Stats:
    with context.reading() as reader:
        job = job_or_404(reader, job_id)
        states, counted = progress.count_replicas_by_state(reader, job_id), job_counts.of_job(reader, job_id)
        first, pay = counted.first_earned_at, worker_figures.estimate_hourly(reader, job_id, context.clock())
        return Stats(
            rounds=counted.rounds,
            tasks=counted.tasks,
            accepted=states.get(ReplicaState.PAYABLE, 0) + states.get(ReplicaState.DIVERGED, 0),
            rejected=states.get(ReplicaState.REJECTED, 0),
            replicas=states,
            uploads=counted.uploads,
            payload_bytes=counted.payload_bytes,
            download_bytes=traffic_of(context, reader, job, jobs.latest_closed(reader, job_id), states).down,
            compute_seconds=counted.compute_seconds,
            first_accepted_seconds=None if first is None else first - job.created_at,
            expected_hourly=None if pay is None else str(int(pay * int(job.unit))),
            settlements=[settlement_view(batch, sent, job.unit) for batch, sent in counted.settlements],
        )


@router.get(
    "/workers/{address}",
    operation_id="get_worker",
    responses=describe_problems(404),
    tags=["workers"],
    summary="The record of a worker",
)
def worker(context: Here, request: Request, source: Source, address: Address) -> WorkerView:
    now, kept = context.clock(), request.app.state.histories  # counts over all its answers
    with context.reading() as reader:
        row = reader.get(Worker, signing.checksum_address(address))
        if row is None:
            raise NotFound(f"no worker {address} has signed in")
        history: History = kept.get(row.address, "", source, lambda: worker_figures.read_history(reader, row.address))
        return WorkerView(
            address=row.address,
            payout=row.payout,
            determinism_class=row.determinism_class,
            seen_at=format_time(row.seen_at),
            joined_at=format_time(row.joined_at),
            strikes=[strikes_view(record, now) for record in list_strikes(reader, row.operator)],
            operator=row.operator,
            proven=row.operator == row.payout,
            barred=bool(workers.list_barred_keys(reader, [row], now)),
            copies=history.copies,
            reputation=[reputation_view(record, now) for record in reputations.list_reputations(reader, row.operator)],
            stakes=stakes_of(reader, row.address),
            replicas=dict(history.replicas),
        )


def stakes_of(reader: RowReader, address: str) -> list[StakeView]:
    stakes = record_lists.stakes_of(reader, address)
    return [
        StakeView(job=job, chain_job=number, at_risk=format_amount(units, unit)) for job, number, units, unit in stakes
    ]


class RecordsFeature(Feature):
    name = "records"
    needs = ("answer_cache", "reputation")
    routers = (earning_routes.router, router, evidence_routes.router)

    def open_caches(self, state: State, context: Context) -> None:
        state.stats = CachedAnswers[Stats](state.strangers_share)
        state.histories = Recent[History](state.strangers_share)
