"""How a job ends: what nobody has committed to is called off; what is committed is still judged and paid."""

from collections.abc import Iterable

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from gradmarket.market.terms import JobState, ReplicaState, TaskState
from gradmarket.requester.bell import ended_topic, worker_topic
from gradmarket.requester.context import Context
from gradmarket.requester.stages import verdicts
from gradmarket.requester.store.events import tell
from gradmarket.requester.store.locks import locked_tasks
from gradmarket.requester.store.session import ring
from gradmarket.requester.store.tables import Account, Job, Replica, Task, Worker
from gradmarket.requester.store.tasks import replicas_of
from gradmarket.requester.store.transitions import move, move_now


def end(context: Context, session: Session, job: Job, state: JobState, reason: str) -> bool:
    """Moves the job, which the caller has locked, to an end and calls off its open work; False where it has ended."""
    now = context.clock()
    if not move_now(session, job, state, reason=reason, ended_at=now):
        return False
    call_off(context, session, job.id)
    tell(session, job.id, state.value, now, reason=reason)
    theirs = (topic(address) for address in _workers(session, job.id) for topic in (worker_topic, ended_topic))
    ring(session, "settle", *theirs)
    return True


def call_off(context: Context, session: Session, job_id: str, round_number: int | None = None) -> None:
    """Cancels gathering tasks (of one round, or all) that no commitment waits in; the others close as they are."""
    gathering = select(Task).where(Task.job_id == job_id, Task.state.in_([TaskState.OPEN, TaskState.COMMITTING]))
    if round_number is not None:
        gathering = gathering.where(Task.round == round_number)
    for task in locked_tasks(session, gathering):
        replicas = replicas_of(session, [task])[task.id]
        dismiss(session, replicas)
        task.wave_size = sum(replica.state == ReplicaState.COMMITTED for replica in replicas)
        if task.wave_size == 0:
            verdicts.inconclusive(context, session, task, "no longer needed")
            move(task, TaskState.CANCELLED, ended_at=context.clock(), reason="no longer needed")
    ring(session, "close")


def dismiss(
    session: Session,
    replicas: Iterable[Replica],
    state: ReplicaState = ReplicaState.NOT_NEEDED,
    reason: str = "",
) -> None:
    """Ends the leases among a task's replicas: nobody waits for them any more."""
    for replica in replicas:
        if replica.state == ReplicaState.LEASED:
            move(replica, state, reason=reason)
            ring(session, worker_topic(replica.worker))


def strike(session: Session, address: str) -> None:
    """Counts an answer that a worker owed and did not give."""
    session.execute(update(Worker).where(Worker.address == address).values(strikes=Worker.strikes + 1))


def work_off(session: Session, address: str) -> None:
    """An accepted gradient makes up for one strike: who lapses now and then is not suspended for good."""
    if session.get_one(Worker, address).strikes > 0:
        struck = update(Worker).where(Worker.address == address, Worker.strikes > 0)
        session.execute(struck.values(strikes=Worker.strikes - 1))


def _workers(session: Session, job_id: str) -> list[str]:
    return list(session.scalars(select(Account.worker).where(Account.job_id == job_id)))
