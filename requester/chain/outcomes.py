"""Records the outcome of a transaction, and its consequences, in the caller's database transaction."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from contracts import events
from contracts.event_types import JobOpened
from contracts.ledger import Ledger
from contracts.transaction_types import Mined, Outcome, Receipt, Reverted, Signed
from gradmarket.market.rules import payment
from gradmarket.market.terms import BatchState, JobState
from requester.chain.chain_context import TransactionKind, TransactionState
from requester.store.locks import lock_row
from requester.store.tables import Batch, Job, Transaction
from requester.store.work import RowReader, Work, record_event


def store_replacement(work: Work, row_id: int, signed: Signed, offer: dict[str, Any], replaced: Sequence[str]) -> None:
    """Stores a replacement before it is sent, and the hashes of all that it replaces, the oldest first."""
    row = work.get_one(Transaction, row_id)
    row.replaced = list(replaced)
    row.raw, row.hash, row.offer = signed.raw, signed.hash, offer


def record_sending(work: Work, row_id: int, now: float, error: str) -> None:
    """Records that a node took the transaction, or in `error` why it refused it; a refused one is sent again."""
    row = work.get_one(Transaction, row_id)
    row.sent_at, row.error = now, error
    if error or row.state != TransactionState.PREPARED:
        return
    row.state = TransactionState.SENT
    for batch in list_transaction_batches(work, row_id):
        if batch.state == BatchState.PREPARED:
            work.set_state_now(batch, BatchState.SENT)


def record_outcome(work: Work, ledger: Ledger, row_id: int, outcome: Outcome, hash_: str, now: float) -> None:
    """Records an outcome: mined, reverted, or (unknown, and its nonce used by another) lost."""
    row = work.get_one(Transaction, row_id)
    row.hash = hash_
    match outcome:
        case Mined(receipt):
            _store_receipt(row, TransactionState.MINED, receipt)
            if row.kind == TransactionKind.SETTLE:
                for batch in list_transaction_batches(work, row.id):
                    record_settlement(work, batch, now)
            if row.kind == TransactionKind.OPEN and row.job_id is not None:
                job = lock_row(work, Job, row.job_id)
                for event in events.opened(ledger, receipt):
                    record_escrow_opening(work, job, event, now)
        case Reverted(name, receipt):
            _store_receipt(row, TransactionState.REVERTED, receipt)
            row.error = name
            _apply_failure(work, row, now)
        case _:
            row.state, row.error = TransactionState.LOST, "its nonce was used by another transaction"
            _apply_failure(work, row, now)


def record_settlement(work: Work, batch: Batch, now: float) -> None:
    if batch.state != BatchState.SETTLED and work.set_state_now(batch, BatchState.SETTLED, settled_at=now):
        amount = str(batch.units * int(work.get_one(Job, batch.job_id).unit))
        record_event(work, batch.job_id, "settled", now, batch=batch.number, gradients=batch.gradients, amount=amount)


def put_back(work: Work, batch: Batch) -> None:
    if batch.state != BatchState.PREPARED:
        work.set_state_now(batch, BatchState.PREPARED, settled_at=None)


def record_escrow_opening(work: Work, job: Job, event: JobOpened, now: float) -> None:
    """Records that the escrow of the job, locked by the caller, is on-chain; the job runs unless it was ended."""
    job.chain_job, job.expiry, job.claim_until = event.job, event.expiry, event.claim_until
    job.deposited = min(event.deposited, payment.MAX_UNITS)
    work.flush()
    record_event(work, job.id, "funded", now, chain_job=event.job, deposited=str(event.deposited * int(job.unit)))
    if job.state == JobState.AWAITING_FUNDS:
        work.set_state_now(job, JobState.RUNNING, reason="")
        work.notify("plan")


def _store_receipt(row: Transaction, state: TransactionState, receipt: Receipt) -> None:
    row.state, row.block, row.gas, row.error = state, receipt.block, receipt.gas, ""


def _apply_failure(work: Work, row: Transaction, now: float) -> None:
    """Keeps the batch without its transaction; settlement_batches checks the chain and posts it again if needed."""
    for batch in list_transaction_batches(work, row.id):
        put_back(work, batch)
        batch.transaction_id = None
    if row.job_id is not None:
        record_event(work, row.job_id, "transaction_failed", now, purpose=row.kind, hash=row.hash, reason=row.error)


def list_transaction_batches(reader: RowReader, row_id: int) -> list[Batch]:
    return list(reader.session.scalars(select(Batch).where(Batch.transaction_id == row_id)))
