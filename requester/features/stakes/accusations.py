"""Accusations as rows: a failed audit creates them, and requester.features.stakes.accusing takes them to the chain."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sqlalchemy import ForeignKey, Index, exists, select
from sqlalchemy.orm import Mapped, mapped_column

from contracts.calls import case_id
from gradmarket.market import stakes
from gradmarket.market.job import JobSpec
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
    """Hash of the worker's offence: market.stakes."""
    case: Mapped[Hash]
    """The contract's id of the case."""
    amount: Mapped[str]
    """In the token's smallest unit, as a decimal string; zero until the case is on-chain."""
    until: Mapped[int | None]
    """When the window to contest, or to decide, ends."""
    created_at: Mapped[float]

    __table_args__ = (Index("accusations_by_state", "state", "created_at"), Index("accusations_of_job", "job_id"))


def create_accusations(
    work: Work,
    job: Job,
    task: Task,
    replicas: Iterable[Replica],
    audited: str,
    now: float,
    name_case: Callable[[int, Address, Hash], Hash] = case_id,
) -> None:
    """Creates an accusation of each replica that was paid for another answer than `audited`, of a job on the chain."""
    if job.chain_job is None:
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
                case=name_case(job.chain_job, replica.worker, event),
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


def of_job(reader: RowReader, job_id: str) -> Sequence[Accusation]:
    return reader.session.scalars(select(Accusation).where(Accusation.job_id == job_id)).all()


def was_acquitted(reader: RowReader, job_id: str, worker: Address) -> bool:
    """Returns whether a case of the worker in the job ended without a ruling against it."""
    acquitted = (Accusation.worker == worker, Accusation.state == AccusationState.ACQUITTED)
    return bool(reader.session.scalar(select(exists().where(Accusation.job_id == job_id, *acquitted))))


def open_ones(reader: RowReader, takes: Callable[[JobSpec], bool]) -> Sequence[tuple[Job, Accusation]]:
    """Returns the accusations that are not over, of jobs that it `takes`, in the order of their creation."""
    order = (Accusation.created_at, Accusation.task_id, Accusation.worker)
    waiting = select(Accusation).where(Accusation.state.in_(OPEN)).order_by(*order)
    pairs = [(reader.get_one(Job, row.job_id), row) for row in reader.session.scalars(waiting)]
    return [(job, row) for job, row in pairs if takes(jobs.load_spec(job))]
