"""Accusations as rows: a failed audit creates them, and requester.chain.accusing takes them to the chain."""

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import select

from contracts.calls import case_id
from gradmarket.market.rules import accusing
from gradmarket.market.terms import AccusationState, Digest, Hash
from gradmarket.market.wire.poll import hash_of
from requester.store import jobs
from requester.store.tables import Accusation, Job, Replica, Task
from requester.store.work import RowReader, Work

OPEN: Final = (AccusationState.DUE, AccusationState.OPEN, AccusationState.CONTESTED)


def create_accusations(work: Work, job: Job, task: Task, replicas: Iterable[Replica], audited: str, now: float) -> None:
    """Creates an accusation of each replica that was paid for another answer than `found`, where the job may slash."""
    if jobs.load_spec(job).stake is None or job.chain_job is None:
        return
    for replica in replicas:
        roots = (hash_of(Digest(replica.root or "")), hash_of(Digest(audited)))
        event = accusing.compute_accusation_event(task.offer_digest, Hash(replica.sealed or b""), *roots)
        work.add(
            Accusation(
                task_id=task.id,
                worker=replica.worker,
                job_id=job.id,
                state=AccusationState.DUE,
                event=event,
                case=case_id(job.chain_job, replica.worker, event),
                amount="0",
                created_at=now,
            )
        )
    work.flush()
    work.notify("settle")


def of_task(reader: RowReader, task_id: str) -> Sequence[Accusation]:
    return reader.session.scalars(
        select(Accusation).where(Accusation.task_id == task_id).order_by(Accusation.worker)
    ).all()


def open_ones(reader: RowReader) -> Sequence[Accusation]:
    """Returns the accusations that are not over, in the order of their creation."""
    waiting = select(Accusation).where(Accusation.state.in_(OPEN))
    return reader.session.scalars(waiting.order_by(Accusation.created_at, Accusation.task_id, Accusation.worker)).all()
