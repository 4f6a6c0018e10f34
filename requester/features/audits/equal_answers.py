"""Queries accepted answers in the form that market.rules.copying compares."""

from collections.abc import Sequence

from sqlalchemy import select

from gradmarket.market.rules.copying import AcceptedAnswer
from gradmarket.market.rules.lifecycle import ONCE_ACCEPTED
from gradmarket.market.terms import AuditState, Digest, ReplicaState, TaskState
from requester.store.tables import Audit, Replica, Task
from requester.store.work import RowReader


def load_equal_answers(reader: RowReader, task: Task, reason: str) -> tuple[AcceptedAnswer, list[AcceptedAnswer]]:
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


def list_revealed_roots(reader: RowReader, task_id: str) -> Sequence[str]:
    """Returns the roots that the task's replicas revealed and that are not judged yet."""
    revealed = (Replica.task_id == task_id, Replica.state == ReplicaState.REVEALED)
    return [root for root in reader.session.scalars(select(Replica.root).where(*revealed)) if root]


def _with_roots(reader: RowReader, job_id: str, roots: Sequence[str | None]) -> list[AcceptedAnswer]:
    rows = select(Task.id, Task.round, Task.index, Task.root, Task.state, Audit.state)
    rows = rows.outerjoin(Audit, Audit.task_id == Task.id).where(Task.job_id == job_id, Task.root.in_(roots))
    return [
        AcceptedAnswer(task_id, round, index, Digest(root or ""), _is_right(state, audit))
        for task_id, round, index, root, state, audit in reader.session.execute(
            rows.where(Task.state.in_(ONCE_ACCEPTED)).order_by(Task.id)
        )
    ]


def _is_right(state: str, audit: str | None) -> bool | None:
    if state == TaskState.REVOKED:
        return False
    return True if audit == AuditState.PASSED else None
