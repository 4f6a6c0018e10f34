"""Accusations as rows: a failed audit creates them, and requester.features.stakes.accusing takes them to the chain."""

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import ForeignKey, Index, select
from sqlalchemy.orm import Mapped, mapped_column

from contracts.calls import case_id
from gradmarket.market import stakes
from gradmarket.market.terms import AccusationState, Address, Digest, Hash
from gradmarket.market.wire.poll import hash_of
from requester.store import jobs
from requester.store.tables import Base, Job, Replica, Task
from requester.store.work import RowReader, Work

OPEN: Final = (AccusationState.DUE, AccusationState.OPEN, AccusationState.CONTESTED)


class Accusation(Base):
    """A worker with a stake in the job, accused of the wrong answer that an audit found."""

    __tablename__ = "accusations"

    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    worker: Mapped[Address] = mapped_column(ForeignKey("workers.address"), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    state: Mapped[AccusationState]
    event: Mapped[Hash]
    """Hash of what the worker did: market.stakes."""
    case: Mapped[Hash]
    """The contract's id of the case."""
    amount: Mapped[str]
    """In the token's smallest unit, as a decimal string; zero until the case is on-chain."""
    until: Mapped[int | None]
    """When the window to contest, or to decide, ends."""
    created_at: Mapped[float]

    __table_args__ = (Index("accusations_by_state", "state", "created_at"),)


def create_accusations(work: Work, job: Job, task: Task, replicas: Iterable[Replica], audited: str, now: float) -> None:
    """Creates an accusation of each replica that was paid for another answer than `found`, where the job may slash."""
    if jobs.load_spec(job).stake is None or job.chain_job is None:
        return
    for replica in replicas:
        roots = (hash_of(Digest(replica.root or "")), hash_of(Digest(audited)))
        event = stakes.compute_accusation_event(task.offer_digest, Hash(replica.sealed or b""), *roots)
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
