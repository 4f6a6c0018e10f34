"""Workers whose quorum of a task diverged, set aside so that others are asked before the job pauses."""

from collections.abc import Collection
from typing import Final

from sqlalchemy import bindparam, select, update

from gradmarket.market.terms import Address, ReplicaState, TaskState
from requester.store.tables import Job, Replica, Task
from requester.store.work import RowReader, Work

ASKED: Final = "others are asked: "
"""The start of the reason of a diverged task that is done again by others."""
_OTHERS_ASKED: Final = (Task.state == TaskState.FINAL, Task.reason.startswith(ASKED))


def list_set_aside(reader: RowReader, job: Job, rounds: Collection[int]) -> dict[int, frozenset[Address]]:
    """Returns by round the workers that get no further task there while others are asked for a task that diverged."""
    found = reader.session.execute(_SET_ASIDE, {"job": job.id, "rounds": list(rounds)}).all()
    return {number: frozenset(worker for worker, of in found if of == number) for number in rounds}


_SET_ASIDE: Final = (
    select(Replica.worker, Task.round)
    .join(Task, Task.id == Replica.task_id)
    .where(Task.job_id == bindparam("job"), Task.round.in_(bindparam("rounds", expanding=True)), *_OTHERS_ASKED)
    .where(Replica.state == ReplicaState.DIVERGED)
)


def were_others_asked(reader: RowReader, task: Task) -> bool:
    """Returns whether an earlier attempt at the task diverged, too."""
    same = (Task.job_id == task.job_id, Task.round == task.round, Task.index == task.index)
    return reader.session.scalar(select(Task.id).where(*same, *_OTHERS_ASKED).limit(1)) is not None


def list_diverged_operators(reader: RowReader, task: Task) -> frozenset[str]:
    """Returns the operators that diverged in earlier attempts at the task, after which others were asked."""
    same = (Task.job_id == task.job_id, Task.round == task.round, Task.index == task.index)
    found = select(Replica.operator).join(Task, Task.id == Replica.task_id).where(*same, *_OTHERS_ASKED)
    return frozenset(reader.session.scalars(found.where(Replica.state == ReplicaState.DIVERGED)))


def forget_set_aside(work: Work, job_id: str) -> None:
    """Allows all workers again, as a requester that resumes the job wants it."""
    work.session.execute(update(Task).where(Task.job_id == job_id, *_OTHERS_ASKED).values(reason=ASKED.strip()))
