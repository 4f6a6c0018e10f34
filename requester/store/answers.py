"""Queries accepted answers in the form that market.rules.copying compares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import bindparam, exists, func, select
from sqlalchemy.orm import aliased

from gradmarket.market.rules.copying import AcceptedAnswer
from gradmarket.market.terms import AuditState, Digest, ReplicaState, TaskState
from requester.store.tables import Audit, Replica, Task
from requester.store.work import RowReader

ACCEPTED = (TaskState.ACCEPTED, TaskState.FINAL, TaskState.REVOKED)


def pointing(reader: RowReader, task: Task, reason: str) -> tuple[AcceptedAnswer, list[AcceptedAnswer]]:
    """Returns the task's accepted answer, and the job's other answers with the same root.

    If there are others, also returns answers whose roots passed an audit drawn for `reason`.
    """
    answers = _with_roots(reader, task.job_id, [task.root])
    if len(answers) > 1:
        passed = (Audit.job_id == task.job_id, Audit.state == AuditState.PASSED, Audit.reason == reason)
        answers = _with_roots(
            reader, task.job_id, [task.root, *reader.session.scalars(select(Audit.root).where(*passed))]
        )
    (own,) = (answer for answer in answers if answer.task == task.id)
    return own, [answer for answer in answers if answer is not own]


def _with_roots(reader: RowReader, job_id: str, roots: Sequence[str | None]) -> list[AcceptedAnswer]:
    rows = select(Task.id, Task.round, Task.index, Task.root, Task.state, Audit.state)
    rows = rows.outerjoin(Audit, Audit.task_id == Task.id).where(Task.job_id == job_id, Task.root.in_(roots))
    return [
        AcceptedAnswer(task_id, round, index, Digest(root or ""), _right(state, audit))
        for task_id, round, index, root, state, audit in reader.session.execute(
            rows.where(Task.state.in_(ACCEPTED)).order_by(Task.id)
        )
    ]


@dataclass(frozen=True, slots=True)
class History:
    """Of a worker in all jobs: its replicas by state, and how many answers it was paid for that an audit found wrong
    and another task of the job had too."""

    replicas: Mapping[str, int]
    copies: int


def history(reader: RowReader, worker: str) -> History:
    asked = {"worker": worker}
    return History(dict(reader.session.execute(_STATES, asked).all()), reader.session.scalar(_COPIES, asked) or 0)


_STATES: Final = (
    select(Replica.state, func.count()).where(Replica.worker == bindparam("worker")).group_by(Replica.state)
)
_OTHER: Final = aliased(Task)
_COPIES: Final = (
    select(func.count())
    .select_from(Replica)
    .join(Task, Task.id == Replica.task_id)
    .where(
        Replica.worker == bindparam("worker"),
        Replica.state == ReplicaState.PAYABLE,
        Replica.root == Task.root,
        Task.state == TaskState.REVOKED,
        exists().where(
            _OTHER.job_id == Task.job_id, _OTHER.root == Task.root, _OTHER.id != Task.id, _OTHER.state.in_(ACCEPTED)
        ),
    )
)


def _right(state: str, audit: str | None) -> bool | None:
    if state == TaskState.REVOKED:
        return False
    return True if audit == AuditState.PASSED else None
