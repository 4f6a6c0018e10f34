"""A job's whole ledger at one block: its promises, from the rows, and its moves, from the chain's events."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import func, select

from contracts.ledger import AccountOnChain, Block, JobOnChain, Ledger
from gradmarket.market.features.ledger import AccountFigures, Cause, JobFigures, LedgerEntry, compare_books
from gradmarket.market.terms import Address, Units
from gradmarket.market.views.payment_views import EntryKind
from gradmarket.network.chain_errors import ChainUnreachable, ContractRefused, NodeRefused
from requester.chain.chain_context import opened_in
from requester.features.ledger import chain_moves
from requester.store.tables import Account, Batch, Earned, Job
from requester.store.work import RowReader

TRIES: Final = 5
"""Attempts: a node that keeps no old states cannot give a block's figures once another block follows."""


@dataclass(frozen=True, slots=True)
class Promises:
    """Promises from the rows: `moves` in the order of earning, up to the EARNED row `through`; `opened` is a block."""

    chain_job: int | None
    workers: tuple[Address, ...]
    moves: tuple[LedgerEntry, ...]
    through: int
    opened: int | None


@dataclass(frozen=True, slots=True)
class Figures:
    """The contract's figures at `block`; all empty for a job that is not on-chain yet."""

    block: Block | None
    job: JobOnChain | None
    accounts: Mapping[Address, AccountOnChain]


def load_promises(reader: RowReader, job: Job, through: int | None = None) -> Promises:
    """Reads the job's promises, up to the EARNED row `through`, or to the last one.

    Pass the `through` of an earlier result, so that a list read in pages is one list.
    """
    last = through
    if last is None:
        last = reader.session.scalar(select(func.max(Earned.id)).where(Earned.job_id == job.id)) or 0
    known = (Earned.job_id == job.id, Earned.id <= last)
    rows = select(Earned, Batch.number).outerjoin(Batch, Batch.id == Earned.batch_id).where(*known)
    kept = [
        one for one in reader.session.execute(rows.order_by(Earned.id)).all() if not (one[0].waits and one[0].revoked)
    ]
    earned = [
        LedgerEntry(EntryKind.EARNED, Units(row.units), row.worker, Cause(row.task_id, row.replica_id, number))
        for row, number in kept
    ]
    accounts = reader.session.scalars(select(Account).where(Account.job_id == job.id).order_by(Account.worker)).all()
    signed = {row.worker for row in accounts if row.voucher_signature is not None}
    # one voucher for each worker: it is signed with every earning and states the sum
    sums = Counter[Address]()
    for row, _ in kept:
        if row.worker in signed and not row.waits:
            sums[row.worker] += row.units
    vouchers = [
        LedgerEntry(EntryKind.VOUCHERED, Units(units), worker, Cause()) for worker, units in sorted(sums.items())
    ]
    workers = tuple(row.worker for row in accounts)
    return Promises(job.chain_job, workers, (*earned, *vouchers), last, opened_in(reader, job.id))


def fetch_figures(ledger: Ledger, promised: Promises) -> Figures:
    """Reads all figures at one block. Raises ChainUnreachable where the node does not keep a block for long enough."""
    if promised.chain_job is None:
        return Figures(None, None, {})
    for _ in range(TRIES):
        block = ledger.block()
        try:
            job = ledger.job(promised.chain_job, block.number)
            return Figures(block, job, ledger.accounts(promised.chain_job, promised.workers, block.number))
        except (NodeRefused, ContractRefused):
            if ledger.block() == block:
                raise
    raise ChainUnreachable("it does not keep a block's figures for long enough to read them")


def list_ledger_entries(
    ledger: Ledger, promised: Promises, block: int | None, known: Figures | None = None
) -> list[LedgerEntry]:
    """Returns the promises, then the moves on-chain up to `block`.

    The newest figures are needed for lapsed money alone, and that is the same at every block: nothing lapses before all
    claims have ended, and nothing is credited after.
    """
    if promised.chain_job is None or block is None:
        return list(promised.moves)
    moved = chain_moves.list_moves(ledger, promised.chain_job, block, promised.opened)
    accounts = (known or fetch_figures(ledger, promised)).accounts
    return [
        *promised.moves,
        *chain_moves.insert_lapsed_moves(moved, {one: account.credited for one, account in accounts.items()}),
    ]


def compare_with_contract(made: list[LedgerEntry], onchain: Figures) -> list[str]:
    """Describes each disagreement between ledger and contract."""
    ended = any(move.kind is EntryKind.LAPSED for move in made)
    job = JobFigures(onchain.job.deposited, onchain.job.reserved) if onchain.job else JobFigures(Units(0), Units(0))
    figures = {
        worker: AccountFigures(
            Units((account.credited if ended else account.reserved) - account.withdrawn),
            account.settled,
            account.withdrawn,
        )
        for worker, account in onchain.accounts.items()
    }
    return compare_books(made, job, figures)
