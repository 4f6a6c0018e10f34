"""Queries about tasks and their replicas."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Integer, Select, and_, bindparam, exists, func, or_, select, update

from gradmarket.market.job_fields import STALEST
from gradmarket.market.rules.lifecycle import IN_FLIGHT
from gradmarket.market.terms import Address, ReplicaState, TaskState
from requester.store.among import is_in_bound_list
from requester.store.locks import held_tasks, in_order, locked_tasks
from requester.store.merges import UNACCEPTED, merged_in
from requester.store.tables import Job, Replica, Task
from requester.store.work import RowReader, Work


def replicas_of(reader: RowReader, tasks: Sequence[Task]) -> dict[str, list[Replica]]:
    """Returns all replicas of each task by its id, as this transaction has left them, whether flushed yet or not."""
    by_task: dict[str, list[Replica]] = {task.id: [] for task in tasks}
    for replica in reader.session.scalars(_OF_TASKS, {"tasks": list(by_task)}) if by_task else ():
        by_task[replica.task_id].append(replica)
    return by_task


_OF_TASKS: Final = select(Replica).where(is_in_bound_list(Replica.task_id, "tasks")).execution_options(autoflush=False)


def open_ones(work: Work, job_id: str, most: int) -> Sequence[Task]:
    """Locks and returns up to `most` open tasks. Later waves come first: workers that committed to them are waiting."""
    rows = work.session.scalars(_OPEN_ONES, {"job": job_id, "most": most}).all()
    return sorted((task for task in rows if task.state == TaskState.OPEN), key=lambda task: -task.wave)[:most]


def _select_open_tasks(where: ColumnElement[bool], *order: Any) -> Select[str]:
    ordered = select(Task.id).where(Task.job_id == bindparam("job"), Task.state == TaskState.OPEN, where)
    first = ordered.order_by(*order, Task.round, Task.index, Task.attempt).limit(bindparam("most", type_=Integer))
    return select(first.subquery().c.id)


_EITHER: Final = _select_open_tasks(Task.wave > 0, Task.wave.desc()).union_all(_select_open_tasks(Task.wave == 0))
_OPEN_ONES: Final = in_order(select(Task).where(Task.id.in_(_EITHER)))


def lock_gathering_tasks(work: Work, job_id: str, round_number: int | None) -> Sequence[Task]:
    """Locks and returns the tasks, of one round or of all, whose wave still takes commitments, and those whose payload
    a review is to bring.
    """
    gathering = Task.state.in_([TaskState.OPEN, TaskState.COMMITTING])
    owed = and_(Task.state == TaskState.UPLOADING, Task.uploader.is_(None))
    rows = select(Task).where(Task.job_id == job_id, or_(gathering, owed))
    return locked_tasks(work, rows if round_number is None else rows.where(Task.round == round_number))


def awaits_review(task: Task) -> bool:
    """Returns whether a review is to bring the task's payload, since it found none of its answers right."""
    return task.state == TaskState.UPLOADING and task.uploader is None


def find_first_accepted_round(reader: RowReader, job_id: str, since: int) -> int | None:
    """Returns the first round from `since` on with an accepted task: a review may still take it back."""
    accepted = (Task.job_id == job_id, Task.state == TaskState.ACCEPTED, Task.merge_round >= since)
    return reader.session.scalar(select(func.min(Task.merge_round)).where(*accepted))


def lock_unaccepted_tasks(work: Work, job_id: str, number: int) -> Sequence[Task]:
    """Locks and returns the tasks that the merge of a round is to take and that are neither accepted nor over."""
    return locked_tasks(work, select(Task).where(*merged_in(job_id, number), Task.state.in_(UNACCEPTED)))


def left_before(reader: RowReader, job_id: str, number: int) -> dict[int, bool]:
    """Returns the tasks that no merge before round `number` took, and whether an answer to each may still come.

    They are among those that the merge before was to take, or that it left to this one.
    """
    known = select(Task.index, Task.merge_round, Task.used, Task.state).where(
        Task.job_id == job_id,
        Task.round.between(number - 1 - STALEST, number - 1),
        Task.merge_round.in_((number - 1, number)),
    )
    merged, left = set(), dict[int, bool]()
    for index, merge_round, used, state in reader.session.execute(known):
        if used:
            merged.add(index)
        goes_on = merge_round == number and state in (*UNACCEPTED, TaskState.ACCEPTED)
        left[index] = left.get(index, False) or goes_on
    return {index: goes_on for index, goes_on in left.items() if index not in merged}


def first_new_task(reader: RowReader, job_id: str, number: int) -> int:
    """Returns the first task of the job's order that no round before this one had."""
    last = select(func.max(Task.index)).where(Task.job_id == job_id, Task.round == number - 1)
    newest = reader.session.scalar(last)
    return 0 if newest is None else int(newest) + 1


def list_diverged_tasks(reader: RowReader, job_id: str) -> Sequence[Task]:
    rows = select(Task).where(Task.job_id == job_id, Task.state == TaskState.DIVERGED)
    return reader.session.scalars(rows).all()


def forgive_failures(work: Work, job_id: str) -> None:
    work.session.execute(update(Task).where(Task.job_id == job_id, Task.failures > 0).values(failures=0))


def offer_declined_again(work: Work, now: float) -> None:
    """Ends the patience of open tasks that a worker declined: none could be taken while the chain did not answer."""
    declined = exists().where(Replica.task_id == Task.id, Replica.state == ReplicaState.ABANDONED)
    waiting = select(Task).where(Task.state == TaskState.OPEN, Task.patience_until > now, declined)
    for task in held_tasks(work, waiting):
        task.patience_until = now
    work.notify("expire")


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


def list_diverged_replicas(reader: RowReader, job_id: str, number: int) -> dict[int, list[Replica]]:
    """Returns by task the replicas of the round that diverged in earlier attempts, after which others were asked."""
    found = select(Task.index, Replica).join(Task, Task.id == Replica.task_id).where(*_OTHERS_ASKED)
    theirs = found.where(Task.job_id == job_id, Task.round == number, Replica.state == ReplicaState.DIVERGED)
    by_task = defaultdict[int, list[Replica]](list)
    for index, replica in reader.session.execute(theirs):
        by_task[index].append(replica)
    return by_task


def list_other_replicas(reader: RowReader, job_id: str, number: int) -> Sequence[Replica]:
    """Returns the replicas of the round's tasks whose answers are under way or were accepted."""
    theirs = select(Replica).join(Task, Task.id == Replica.task_id).where(Task.job_id == job_id, Task.round == number)
    return reader.session.scalars(theirs.where(Replica.state.in_((*IN_FLIGHT, ReplicaState.PAYABLE)))).all()


def forget_set_aside(work: Work, job_id: str) -> None:
    """Allows all workers again, as a requester that resumes the job wants it."""
    work.session.execute(update(Task).where(Task.job_id == job_id, *_OTHERS_ASKED).values(reason=ASKED.strip()))
