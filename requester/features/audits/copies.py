"""Finds accepted answers that another task of the job has too; both are audited. The rule is market.rules.copying."""

from collections.abc import Sequence
from typing import Final

from gradmarket.market.rules import copying
from gradmarket.market.terms import TaskState
from requester.features.audits import audit_rows, equal_answers
from requester.store.event_log import record_event
from requester.store.tables import Task
from requester.store.work import RowReader, Work

ALIKE: Final = "another task has the same answer"


def has_equal_answer(reader: RowReader, task: Task) -> bool:
    """Returns whether the task that was just accepted is audited for certain."""
    own, others = equal_answers.load_equal_answers(reader, task, ALIKE)
    return bool(copying.to_audit(own, others))


def lock_equal_unaudited_tasks(work: Work, task: Task) -> Sequence[Task]:
    """Returns, once the task's audit is over, the accepted tasks with the same answer that nobody has audited yet.

    Their rows are locked. Returns none for a task that diverged honestly, since it was never accepted.
    """
    if task.state == TaskState.DIVERGED:
        return ()
    own, others = equal_answers.load_equal_answers(work, task, ALIKE)
    return audit_rows.lock_unaudited_tasks(work, [answer.task for answer in copying.to_audit(own, others)])


def record_copied_answer(work: Work, task: Task, workers: Sequence[str], now: float) -> None:
    """Logs which workers were paid for a copy; does nothing if the wrong answer is not a copy."""
    own, others = equal_answers.load_equal_answers(work, task, ALIKE)
    same = [answer.task for answer in copying.list_possible_originals(own, others)]
    if same:
        record_event(work, task.job_id, "copied", now, task=task.id, round=task.round, same_as=same, workers=workers)
