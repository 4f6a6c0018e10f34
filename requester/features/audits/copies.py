"""Finds accepted answers that another task of the job has too; both are audited. The rule is audits.copying."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select

from gradmarket.market.features.audits import copying
from gradmarket.market.features.audits.copying import AcceptedAnswer
from gradmarket.market.rules.lifecycle import ONCE_ACCEPTED
from gradmarket.market.terms import AuditState, Digest, TaskState
from requester.features.audits import audit_rows
from requester.features.audits.audit_tables import Audit
from requester.store.tables import Task
from requester.store.work import RowReader, Work, record_event

ALIKE: Final = "another task has the same answer"


def has_equal_answer(reader: RowReader, task: Task) -> bool:
    """Returns whether the task that was just accepted is audited for certain."""
    own, others = _load_equal_answers(reader, task, ALIKE)
    return bool(copying.to_audit(own, others))


def lock_equal_unaudited_tasks(work: Work, task: Task) -> Sequence[Task]:
    """Returns, once the task's audit is over, the accepted tasks with the same answer that nobody has audited yet.

    Their rows are locked. Returns none for a task that diverged honestly, since it was never accepted.
    """
    if task.state == TaskState.DIVERGED:
        return ()
    own, others = _load_equal_answers(work, task, ALIKE)
    return audit_rows.lock_unaudited_tasks(work, [answer.task for answer in copying.to_audit(own, others)])


def record_copied_answer(work: Work, task: Task, workers: Sequence[str], now: float) -> None:
    """Logs which workers were paid for a copy; does nothing if the wrong answer is not a copy."""
    own, others = _load_equal_answers(work, task, ALIKE)
    same = [answer.task for answer in copying.list_possible_originals(own, others)]
    if same:
        record_event(work, task.job_id, "copied", now, task=task.id, round=task.round, same_as=same, workers=workers)


def _load_equal_answers(reader: RowReader, task: Task, reason: str) -> tuple[AcceptedAnswer, list[AcceptedAnswer]]:
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
    # wrong where it was revoked, right where it passed an audit, else unknown
    return [
        AcceptedAnswer(
            task_id,
            round,
            index,
            Digest(root or ""),
            state != TaskState.REVOKED and (audit == AuditState.PASSED or None),
        )
        for task_id, round, index, root, state, audit in reader.session.execute(
            rows.where(Task.state.in_(ONCE_ACCEPTED)).order_by(Task.id)
        )
    ]
