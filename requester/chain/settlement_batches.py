"""Puts EARNED rows into batches and settles them on-chain (settlePacked), each exactly once.

A batch has the contract's next number, and the contract accepts each number once. So a batch counts once, even if its
transaction is repeated. Its rows, its number and its signed transaction are committed together before anything is sent.

A batch publishes the roots of its gradients, so a row waits until its answer may be published (market.rules.lifecycle).
Its worker has a voucher for it meanwhile. The batch carries the head of the job's log too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from sqlalchemy import CursorResult, func, select, update

from contracts import calls
from gradmarket.market.errors import Conflict
from gradmarket.market.messages import LogHead
from gradmarket.market.rules import lifecycle
from gradmarket.market.terms import BatchState
from gradmarket.network.chain_errors import ContractRefused
from requester.chain import escrow, sender
from requester.chain.chain_context import UNBATCHED, ChainContext, ChainPolicy, TransactionKind, record_once, with_money
from requester.store import disclosure
from requester.store.tables import Batch, Earned, Job, Task
from requester.store.work import RowReader, Work


@dataclass(frozen=True, slots=True)
class BatchDraft:
    """A batch before it is stored: `rows` in order of their ids, under the contract's next number."""

    job_id: str
    chain_job: int
    number: int
    rows: Sequence[Earned]
    head: LogHead | None = None
    """The head of the job's log, which the batch carries."""
    new: bool = False
    """Whether no such batch is stored yet."""

    @property
    def units(self) -> int:
        return sum(row.units for row in self.rows)


def settle_due_batches(chain: ChainContext) -> bool:
    """Stores a batch for each job where one is due, or a new transaction for a batch that lost its own.

    Stores none once claims are over by the chain's time, which alone decides that.
    """
    with chain.reading() as reader:
        now = chain.clock()
        found = [(job, due) for job in with_money(reader) if (due := _find_due_batch(reader, job, chain.policy, now))]
    there = chain.ledger.next_time() if found else 0
    drafts = [due for job, due in found if job.claim_until is None or there <= job.claim_until]
    moved = False
    for draft in drafts:
        if draft.new:
            draft = replace(draft, head=chain.extend_log(chain, draft.job_id))
        groups = escrow.groups_of_batch(draft.rows, draft.head)
        try:
            quoted = sender.quote_call(chain, calls.settle_packed(chain.market, draft.chain_job, draft.number, groups))
        except ContractRefused as error:
            if error.name == "WrongBatch":  # the chain has batches that are not here
                moved |= chain.correction.correct_batches(chain, draft.job_id)
            else:
                record_once(chain, draft.job_id, "settlement_refused", batch=draft.number, reason=str(error))
            continue
        with chain.begin() as work:
            # one that lost its transaction, or a new one with the draft's rows
            same = (Batch.job_id == draft.job_id, Batch.number == draft.number)
            batch = work.session.scalar(select(Batch).where(*same))
            if batch is None:
                batch = Batch(
                    job_id=draft.job_id,
                    number=draft.number,
                    state=BatchState.PREPARED,
                    gradients=len(draft.rows),
                    units=draft.units,
                    log_size=None if draft.head is None else draft.head.size,
                    log_root=None if draft.head is None else draft.head.root,
                    created_at=chain.clock(),
                )
                work.add(batch)
                work.flush()
                assign_earned_rows(work, batch, draft.rows)
            row = sender.store_transaction(chain, work, quoted, TransactionKind.SETTLE, draft.job_id)
            batch.transaction_id = row.id
        moved = True
    return moved


def is_batch_due(waiting: int, units: int, oldest: float, policy: ChainPolicy, now: float, ended: bool) -> bool:
    """Returns whether `waiting` EARNED rows of `units` together, the oldest from `oldest`, are worth a batch now."""
    if waiting == 0:
        return False
    worth_it = policy.settle_units is not None and units >= policy.settle_units
    return ended or worth_it or waiting >= policy.settle_gradients or now - oldest >= policy.settle_every_s


def rows_of(reader: RowReader, batch: Batch) -> Sequence[Earned]:
    return reader.session.scalars(select(Earned).where(Earned.batch_id == batch.id).order_by(Earned.id)).all()


def _find_due_batch(reader: RowReader, job: Job, policy: ChainPolicy, now: float) -> BatchDraft | None:
    """Returns the batch that is due, or None; one batch of a job is pending at a time."""
    if job.chain_job is None:
        return None
    unsettled = (Batch.job_id == job.id, Batch.state != BatchState.SETTLED)
    first = reader.session.scalar(select(Batch).where(*unsettled).order_by(Batch.number).limit(1))
    if first is not None:
        stranded = first.transaction_id is None
        head = escrow.head_of_batch(first, job.chain_job)
        return BatchDraft(job.id, job.chain_job, first.number, rows_of(reader, first), head) if stranded else None
    new = (Earned.job_id == job.id, *UNBATCHED, disclosure.of_job(reader, job).tasks)
    summary = select(func.count(), func.sum(Earned.units), func.min(Earned.at))
    waiting, units, oldest = reader.session.execute(summary.join(Task, Task.id == Earned.task_id).where(*new)).one()
    if not is_batch_due(waiting, units or 0, oldest or now, policy, now, lifecycle.is_final_state(job.state)):
        return None
    oldest_first = select(Earned).join(Task, Task.id == Earned.task_id).where(*new).order_by(Earned.id)
    rows = reader.session.scalars(oldest_first.limit(4 * policy.settle_gradients)).all()
    last = reader.session.scalar(select(func.max(Batch.number)).where(Batch.job_id == job.id))
    return BatchDraft(job.id, job.chain_job, 0 if last is None else last + 1, escrow.that_fit(rows), new=True)


def assign_earned_rows(work: Work, batch: Batch, rows: Sequence[Earned]) -> None:
    """Puts EARNED rows into a batch; raises Conflict where one is in another batch already, or was revoked."""
    ids = [row.id for row in rows]
    mine = update(Earned).where(Earned.id.in_(ids), *UNBATCHED).values(batch_id=batch.id)
    taken = cast(CursorResult[Any], work.session.execute(mine)).rowcount
    if taken != len(ids):
        raise Conflict(f"{len(ids) - taken} of the gradients of batch {batch.number} are in another, or taken back")
