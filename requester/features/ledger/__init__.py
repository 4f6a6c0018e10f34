"""A job's ledger in double entry: promises from its rows and moves on-chain, compared with the contract's books."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import State

from gradmarket.market.features.ledger import LedgerEntry
from gradmarket.market.terms import JobId
from gradmarket.market.views.payment_views import BooksView, EntryView, LedgerView
from requester.api.job_routes import NO_JOB, JobPath
from requester.api.job_views import format_amount
from requester.api.paging import NOT_OURS, Cursor, decode_cursor, encode_cursor
from requester.context import Context
from requester.feature import Feature
from requester.features.ledger.ledger_cache import QueuePlace, Statement, Statements

router = APIRouter(prefix="/v1/jobs", tags=["payments"])

Many = Annotated[int, Query(ge=1, le=1000, description="Entries on a page")]


@router.get(
    "/{job_id}/ledger",
    operation_id="get_ledger",
    response_model=LedgerView,
    responses=NO_JOB,
    summary="Every move of the job's money, in double entry",
)
async def ledger(request: Request, job_id: JobPath, cursor: Cursor = None, limit: Many = 500) -> Response:
    """A cursor names the block and the last gradient of the first page, so that all pages are of one moment."""
    statements: Statements = request.app.state.statements
    source: str | None = request.state.source
    if cursor is None:
        statement, start = await statements.newest(job_id, source), 0
    else:
        match decode_cursor(cursor, 3):
            case [int(through), int(block), int(start)] if through >= 0 and start >= 0 and block >= -1:
                statement = await statements.at(QueuePlace(JobId(job_id), through, block), source)
            case _:
                raise HTTPException(422, NOT_OURS)
    body = await run_in_threadpool(_build_ledger_page, statement, start, limit, cursor is None)
    return Response(body, media_type="application/json")


def _build_ledger_page(made: Statement, start: int, limit: int, first: bool) -> bytes:
    sums = {name: format_amount(units, made.unit) for name, units in made.sums.items()} if first else {}
    differ = list(made.differences)
    place, rest = made.place, start + limit < len(made.moves)
    view = LedgerView(
        job=place.job,
        chain_job=made.chain_job,
        block=None if place.block < 0 else place.block,
        books=BooksView(balanced=not differ, differences=differ, accounts=sums) if first else None,
        items=[build_entry_view(move, made.unit) for move in made.moves[start : start + limit]],
        next=encode_cursor([place.through, place.block, start + limit]) if rest else None,
    )
    return view.model_dump_json().encode()


def build_entry_view(move: LedgerEntry, unit: str) -> EntryView:
    cause = move.cause
    return EntryView(
        kind=move.kind,
        debit=move.debit,
        credit=move.credit,
        amount=format_amount(move.units, unit),
        worker=move.worker,
        task=cause.task,
        replica=cause.replica,
        batch=cause.batch,
        tx=cause.tx,
        block=cause.block,
    )


class LedgerFeature(Feature):
    name = "ledger"
    routers = (router,)

    def open_caches(self, state: State, context: Context) -> None:
        state.statements = Statements(context)
