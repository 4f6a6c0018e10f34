"""A job's money in double entry, and whether it adds up to what the contract says."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query

from gradmarket.market.rules.bookkeeping import balances
from gradmarket.requester.api.jobs import NO_JOB, JobPath, found
from gradmarket.requester.api.pages import Cursor, decoded, encoded
from gradmarket.requester.api.state import Here
from gradmarket.requester.api.views.forms import amount
from gradmarket.requester.api.views.ledger import BooksView, LedgerView, entry_view
from gradmarket.requester.chain import statement
from gradmarket.requester.context import Context

router = APIRouter(prefix="/v1/jobs", tags=["payments"])

Many = Annotated[int, Query(ge=1, le=5000, description="Entries on a page")]


@router.get("/{job_id}/ledger", responses=NO_JOB, summary="Every move of the job's money, in double entry")
def ledger(context: Here, job_id: JobPath, cursor: Cursor = None, limit: Many = 1000) -> LedgerView:
    """A cursor names the block and the last gradient of the first page, so that all pages are of one moment."""
    through, block, start = _place(context, cursor) if cursor else (None, None, 0)
    with context.reading() as session:
        job = found(session, job_id)
        promised, unit = statement.promises(session, job, through), job.unit
    figures = statement.figures(context.ledger, promised)
    if cursor is None and figures.block is not None:
        block = figures.block.number
    moves = statement.moves(context.ledger, promised, block, figures)
    sums = {name: amount(units, unit) for name, units in balances(moves).items()}
    differ = statement.compare(moves, figures) if cursor is None else []
    rest = start + limit < len(moves)
    return LedgerView(
        job=job_id,
        chain_job=promised.chain_job,
        block=block,
        books=BooksView(balanced=not differ, differences=differ, accounts=sums) if cursor is None else None,
        items=[entry_view(move, unit) for move in moves[start : start + limit]],
        next=encoded([promised.through, -1 if block is None else block, start + limit]) if rest else None,
    )


def _place(context: Context, cursor: str) -> tuple[int, int | None, int]:
    """The chain has the block, or the events up to it would be looked for without end."""
    newest = context.ledger.height()
    match decoded(cursor, 3):
        case [int(through), int(block), int(start)] if through >= 0 and start >= 0 and -1 <= block <= newest:
            return through, None if block < 0 else block, start
    raise HTTPException(422, "cursor: not one of ours; begin without it")
