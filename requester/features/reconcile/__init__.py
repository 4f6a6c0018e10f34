"""Compares the database with the chain and corrects it: at the start, and whenever an outcome cannot be true.

The chain is right about its events. The database is right about the workers' earnings. A batch that only the chain has
is read from its events, and its gradients are looked up among the EARNED rows. If one is not found there, the job's
settlement stops: to continue would pay for unknown gradients.
"""

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import select

from contracts import events, log_heads
from contracts.packing import PackedGroup
from contracts.proofs import batch_root
from gradmarket.market.errors import Conflict
from gradmarket.market.terms import BatchState, Hash
from requester.chain import escrow, outcomes
from requester.chain.chain_context import ChainContext, Correction, TransactionState, record_once
from requester.feature import Feature
from requester.store.tables import Batch, Earned, Job, Transaction
from requester.store.work import RowReader, Work

DONE = (TransactionState.MINED, TransactionState.REVERTED)


class BooksDiffer(Conflict):
    """The chain has a batch that the books cannot explain."""


def mark_forgotten_transactions(chain: ChainContext) -> bool:
    """Marks the transactions that the chain forgot to be sent again, byte by byte; returns whether any was.

    A chain forgets transactions in a re-org, or when it is restored from an earlier state.
    """
    consumed = chain.ledger.nonce(chain.sender)
    mine = (Transaction.sender == chain.sender, Transaction.nonce >= consumed, Transaction.state.in_(DONE))
    with chain.reading() as reader:
        if reader.session.scalar(select(Transaction.id).where(*mine).limit(1)) is None:
            return False
    with chain.begin() as work:
        for row in work.session.scalars(select(Transaction).where(*mine)).all():
            undo_outcome(work, row)
    return True


def undo_outcome(work: Work, row: Transaction) -> None:
    """Undoes an outcome that the chain forgot: the bytes are sent again, and the batch is no longer settled.

    `gas` stays: it shows that the transaction was mined once, and others may have relied on it.
    """
    row.state, row.block, row.sent_at = TransactionState.PREPARED, None, None
    for batch in outcomes.list_transaction_batches(work, row.id):
        outcomes.put_back(work, batch)


def put_right(chain: ChainContext, job_id: str) -> bool:
    """Runs `correct_batches`. A job with unexplained batches gets an event and settles no more; the others continue."""
    try:
        return correct_batches(chain, job_id)
    except BooksDiffer as error:
        record_once(chain, job_id, "books_differ", reason=str(error))
        return False


def correct_batches(chain: ChainContext, job_id: str) -> bool:
    """Marks batches that the chain has as settled, and resets those it has not; returns whether anything was changed.

    Raises BooksDiffer where the chain has a batch of gradients that no worker earned here.
    """
    with chain.reading() as reader:
        chain_job = reader.get_one(Job, job_id).chain_job or 0
        settled = {batch.number for batch in _list_job_batches(reader, job_id) if batch.state == BatchState.SETTLED}
    onchain = chain.ledger.job(chain_job).batches
    first = next(number for number in range(len(settled) + 1) if number not in settled)
    if onchain > first:
        chain.extend_log(chain, job_id)  # before adopting a batch, the log admits the part of its head that was lost
    changed = [_batch_on_chain(chain, job_id, chain_job, number) for number in range(first, onchain)]
    # batches that are stored as settled and that the chain does not have
    with chain.begin() as work:
        forgotten = [
            b for b in _list_job_batches(work, job_id) if b.number >= onchain and b.state == BatchState.SETTLED
        ]
        for batch in forgotten:
            outcomes.put_back(work, batch)
            row = work.get(Transaction, batch.transaction_id) if batch.transaction_id else None
            if row is None or row.state not in (TransactionState.PREPARED, TransactionState.SENT):
                batch.transaction_id = None
    return any([*changed, bool(forgotten)])


def _batch_on_chain(chain: ChainContext, job_id: str, chain_job: int, number: int) -> bool:
    """Records a batch that the chain has: ours if the roots are equal, else rebuilt from its events.

    Raises BooksDiffer where nobody earned one of its gradients here.
    """
    with chain.reading() as reader:
        ours = _find_batch(reader, job_id, number)
        head = None if ours is None else escrow.head_of_batch(ours, chain_job)
        root = None if ours is None else batch_root(escrow.groups_of_batch(_list_batch_rows(reader, ours), head))
    if root == chain.ledger.batch_root(chain_job, number):
        with chain.begin() as work:
            batch = _find_batch(work, job_id, number)
            if batch is not None:
                outcomes.record_settlement(work, batch, chain.clock())
        return True
    groups = events.settled_groups(chain.ledger, chain_job, number)
    with chain.begin() as work:
        same = _find_batch(work, job_id, number)
        if same is not None and escrow.groups_of(_list_batch_rows(work, same)) == log_heads.list_payments(groups):
            same.log_size, same.log_root = _find_carried_head(groups)
            outcomes.record_settlement(work, same, chain.clock())
            return True
        # our batches from this number on never happened: their gradients wait for a batch again
        for displaced in _list_job_batches(work, job_id):
            if displaced.number >= number:
                for row in _list_batch_rows(work, displaced):
                    row.batch_id = None
                work.flush()
                work.session.delete(displaced)
        work.flush()
        # a batch that only the chain knows, with an unbatched EARNED row for each gradient that it names
        waiting: dict[tuple[str, int, bytes], list[Earned]] = {}
        free = select(Earned).where(Earned.job_id == job_id, Earned.batch_id.is_(None)).order_by(Earned.id.desc())
        for row in work.session.scalars(free):
            waiting.setdefault((row.worker, row.units, row.digest), []).append(row)
        paid = log_heads.list_payments(groups)
        keys = [(group.worker, group.price, digest) for group in paid for digest in group.digests]
        missing = Counter[tuple[str, int, bytes]](keys) - Counter({key: len(rows) for key, rows in waiting.items()})
        if missing:
            raise BooksDiffer(f"{missing.total()} gradients that nobody earned in job {job_id}")
        rows = [waiting[key].pop() for key in keys]
        now = chain.clock()
        size, root = _find_carried_head(groups)
        batch = Batch(
            job_id=job_id,
            number=number,
            state=BatchState.SETTLED,
            gradients=len(rows),
            units=sum(row.units for row in rows),
            log_size=size,
            log_root=root,
            created_at=now,
            settled_at=now,
        )
        work.add(batch)
        work.flush()
        for row in rows:
            row.batch_id = batch.id
    return True


def _find_carried_head(groups: Sequence[PackedGroup]) -> tuple[int | None, Hash | None]:
    """Returns size and root of the head that the batch carries; None for both where it carries none."""
    head = next(filter(None, (log_heads.parse_head(0, group) for group in groups)), None)
    return (None, None) if head is None else (head.size, head.root)


def _list_job_batches(reader: RowReader, job_id: str) -> list[Batch]:
    return list(reader.session.scalars(select(Batch).where(Batch.job_id == job_id).order_by(Batch.number)))


def _find_batch(reader: RowReader, job_id: str, number: int) -> Batch | None:
    return reader.session.scalar(select(Batch).where(Batch.job_id == job_id, Batch.number == number))


def _list_batch_rows(reader: RowReader, batch: Batch) -> list[Earned]:
    return list(reader.session.scalars(select(Earned).where(Earned.batch_id == batch.id).order_by(Earned.id)))


class ReconcileFeature(Feature):
    name = "reconcile"
    correction = Correction(mark_forgotten_transactions, put_right)
