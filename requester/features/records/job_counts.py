"""Totals of a job's rows, and the bytes that its workers sent and fetched."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import bindparam, func, select

from gradmarket.market.terms import Digest
from requester.context import Context
from requester.store.among import is_in_bound_list
from requester.store.tables import Batch, Earned, Job, Replica, Round, Task, Transaction
from requester.store.work import RowReader


@dataclass(frozen=True, slots=True)
class JobCounts:
    """`settlements` are the job's batches in order, each with the transaction that settles it."""

    rounds: int
    tasks: int
    """With an accepted payload."""
    uploads: int
    payload_bytes: int
    compute_seconds: float
    first_earned_at: float | None
    settlements: Sequence[tuple[Batch, Transaction | None]]


def of_job(reader: RowReader, job_id: str) -> JobCounts:
    session = reader.session
    accepted = select(func.count()).select_from(Task).where(Task.job_id == job_id, Task.payload.is_not(None))
    uploads, payload_bytes = count_uploads(reader, job_id)
    rounds = select(func.count()).select_from(Round).where(Round.job_id == job_id)
    computed = select(func.sum(Replica.compute_seconds)).where(Replica.job_id == job_id)
    batches = select(Batch, Transaction).outerjoin(Transaction, Transaction.id == Batch.transaction_id)
    in_order = batches.where(Batch.job_id == job_id).order_by(Batch.number)
    return JobCounts(
        rounds=session.scalar(rounds) or 0,
        tasks=session.scalar(accepted) or 0,
        uploads=uploads,
        payload_bytes=payload_bytes,
        compute_seconds=session.scalar(computed) or 0.0,
        first_earned_at=session.scalar(select(func.min(Earned.at)).where(Earned.job_id == job_id)),
        settlements=[(batch, transaction) for batch, transaction in session.execute(in_order)],
    )


def count_uploads(reader: RowReader, job_id: str) -> tuple[int, int]:
    """Returns the number of payloads that arrived, and their bytes."""
    size = func.count(Task.payload_bytes), func.coalesce(func.sum(Task.payload_bytes), 0)
    count, together = reader.session.execute(select(*size).where(Task.job_id == job_id)).one()
    return count, together or 0


def count_replicas_of(reader: RowReader, job_id: str, workers: Iterable[str]) -> dict[str, dict[str, int]]:
    """Counts each worker's replicas of the job by state."""
    by_worker: dict[str, dict[str, int]] = {worker: {} for worker in workers}
    for worker, state, number in reader.session.execute(_COUNTS_OF, {"job": job_id, "workers": list(by_worker)}):
        by_worker[worker][state] = number
    return by_worker


_COUNTS_OF: Final = (
    select(Replica.worker, Replica.state, func.count())
    .where(Replica.job_id == bindparam("job"), is_in_bound_list(Replica.worker, "workers"))
    .group_by(Replica.worker, Replica.state)
)


@dataclass(frozen=True, slots=True)
class Traffic:
    """`up`: bytes of the payloads that arrived. `down`: bytes of one set of parameters for each replica, or of one
    update where rounds publish updates; fetches from other servers are not counted otherwise. None before the first
    set.
    """

    uploads: int
    up: int
    down: int | None


def traffic_of(
    context: Context, reader: RowReader, job: Job, newest: Round | None, replicas: Mapping[str, int]
) -> Traffic:
    """Returns the job's traffic, given its newest closed round and its numbers of replicas in each state."""
    uploads, up = count_uploads(reader, job.id)
    known = (newest.published_update, newest.updated) if newest is not None else ()
    digests = [*known, (job.publication or {}).get("parameters")]
    kept = (digest for digest in digests if digest and context.blobs.has(Digest(digest)))
    each = next((context.blobs.length(Digest(digest)) for digest in kept), None)
    return Traffic(uploads, up, None if each is None else each * sum(replicas.values()))
