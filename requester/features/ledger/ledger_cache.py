"""Computes and caches ledgers, one at a time for all requests that came meanwhile; limits the time for strangers."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fastapi import HTTPException
from starlette.concurrency import run_in_threadpool

from gradmarket.market.features.ledger import LedgerEntry, compute_balances
from gradmarket.market.terms import JobId
from requester.api.callers import retry_after
from requester.api.job_routes import job_or_404
from requester.api.paging import NOT_OURS
from requester.context import Context
from requester.features.ledger import statement
from requester.store.remembered import Remembered

KEPT: Final = 8
"""Ledgers that are kept for their further pages."""
SHARE: Final = 20.0
"""Computing ledgers for strangers takes at most 1/SHARE of the time."""


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A moment of one job's ledger: the last gradient and the block, which is -1 while the job is not on-chain."""

    job: JobId
    through: int
    block: int


@dataclass(frozen=True, slots=True)
class Statement:
    place: QueuePlace
    chain_job: int | None
    unit: str
    moves: tuple[LedgerEntry, ...]
    sums: Mapping[str, int]
    differences: tuple[str, ...]
    began: float
    """When the computation began, in the event loop's time."""


class Statements:
    """The ledgers of one process. `source` is the caller's address, or None for the requester or one without limits."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._turn = asyncio.Lock()
        self._newest = Remembered[Statement](KEPT)
        self._kept = Remembered[Statement](KEPT)
        self._free_at = 0.0
        """When the next ledger may be computed for a stranger, in the event loop's time."""

    async def newest(self, job_id: str, source: str | None) -> Statement:
        """Returns the job's ledger as of now; strangers get an earlier one while their share of the time is used up.

        Raises 503 if there is no earlier one.
        """
        requested_at = asyncio.get_running_loop().time()
        async with self._turn:
            kept = self._newest.peek(job_id)
            if kept is not None and kept.began >= requested_at:
                return kept
            if source is not None and self._compute_wait() > 0.0:
                if kept is not None:
                    return kept
                raise HTTPException(
                    503, "too many ledgers are being read: try again later", retry_after(self._compute_wait())
                )
            return await self._compute_statement(job_id, None, source)

    async def at(self, place: QueuePlace, source: str | None) -> Statement:
        """Returns the ledger of an earlier page. Raises 422 for a stranger if it is no longer kept."""
        kept = self._kept.peek(place)
        if kept is None and source is not None:
            raise HTTPException(422, "cursor: this ledger is not kept any more; begin without it")
        if kept is None:
            async with self._turn:
                kept = await self._compute_statement(place.job, place, source)
        return kept

    def _compute_wait(self) -> float:
        return self._free_at - asyncio.get_running_loop().time()

    async def _compute_statement(self, job_id: str, place: QueuePlace | None, source: str | None) -> Statement:
        began = asyncio.get_running_loop().time()
        computed = await run_in_threadpool(made_of, self._context, job_id, place, began)
        self._kept.remember(computed.place, computed)
        if place is None:
            self._newest.remember(job_id, computed)
        if source is not None:
            now = asyncio.get_running_loop().time()
            self._free_at = now + SHARE * (now - began)
        return computed


def made_of(context: Context, job_id: str, place: QueuePlace | None, began: float) -> Statement:
    """Computes a ledger from the rows and the chain, as of `place`.

    Without a place it is as of now, and compared with the contract's own figures.
    """
    if place is not None and place.block > context.ledger.height():  # the search for its events would not end
        raise HTTPException(422, NOT_OURS)
    with context.reading() as reader:
        job = job_or_404(reader, job_id)
        promised, unit = statement.load_promises(reader, job, place.through if place else None), job.unit
    figures = statement.fetch_figures(context.ledger, promised)
    newest = figures.block.number if figures.block is not None else None
    block = newest if place is None else None if place.block < 0 else place.block
    moves = statement.list_ledger_entries(context.ledger, promised, block, figures)
    return Statement(
        place=QueuePlace(JobId(job_id), promised.through, -1 if block is None else block),
        chain_job=promised.chain_job,
        unit=unit,
        moves=tuple(moves),
        sums=compute_balances(moves),
        differences=() if place is not None else tuple(statement.compare_with_contract(moves, figures)),
        began=began,
    )
