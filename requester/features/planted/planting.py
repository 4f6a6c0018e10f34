"""Gives tasks that nobody has answered to idle auditors, and takes their results."""

from typing import Final

from gradmarket.market.errors import Conflict, NotFound
from gradmarket.market.rules import classes
from gradmarket.market.wire.audit_messages import AuditAnswer
from requester.context import Context
from requester.features.audits.audit_kind import Asker, AuditKind, OtherWork
from requester.features.planted import planted_rows
from requester.features.planted.planted_rows import PlantedAnswer
from requester.store import jobs
from requester.store.in_hand import TaskInHand
from requester.store.locks import lock_row
from requester.store.tables import Task
from requester.store.work import RowReader, Work

DIFFERS: Final = "an auditor had found another answer before anybody answered"


class PlantingAudits(AuditKind):
    def find_other_work(self, work: Work, asker: Asker, now: float) -> OtherWork | None:
        determinism_class = asker.determinism_class
        task = planted_rows.find_task_to_plant(work, determinism_class, now)
        if task is None:
            return None
        lock_row(work, Task, task.id)
        row = work.get(PlantedAnswer, task.id)
        if row is not None:
            work.session.refresh(row)
            if row.claimed_until is None or row.claimed_until >= now:
                return None  # another auditor was quicker
        else:
            name = classes.find_class_in_job(determinism_class, jobs.spec_of(work, task).reproducible)
            row = PlantedAnswer(task_id=task.id, determinism_class=name, claims=0)
            work.add(row)
        row.auditor, row.claims, row.claimed_until = asker.auditor, row.claims + 1, now + task.offer.lease_seconds
        work.flush()
        return OtherWork(task.id, row.claims - 1, {"planted": True})

    def choose_rate(self, reader: RowReader, hand: TaskInHand, drawn: float) -> tuple[float, str] | None:
        """Audits an accepted answer that is not the planted one: two runs decide, as everywhere, which is wrong."""
        audit = jobs.load_spec(hand.job).audit
        row = reader.get(PlantedAnswer, hand.task.id) if audit is not None and audit.planted else None
        if row is None or row.root is None or row.determinism_class != hand.task.determinism_class:
            return None
        return None if row.root == hand.task.root else (1.0, DIFFERS)


def record_planted_answer(context: Context, task_id: str, answer: AuditAnswer) -> None:
    """Takes an auditor's result; drops it where somebody has answered meanwhile: it was not known beforehand.

    Repeating an answer changes nothing. Raises NotFound where nobody claimed the task, and Conflict for another answer,
    or for one of an auditor that did not claim it last.
    """
    with context.begin() as work:
        if work.get(PlantedAnswer, task_id) is None:
            raise NotFound(f"task {task_id[:80]} is not planted")
        lock_row(work, Task, task_id)
        row = lock_row(work, PlantedAnswer, task_id)
        if row.root is not None:
            if row.root != answer.root:
                raise Conflict("an auditor found another answer to the planted task before")
            return
        if (answer.auditor, answer.run) != (row.auditor, row.claims - 1):
            raise Conflict("the planted task was claimed by another auditor: claim one")
        row.claimed_until = None
        if not planted_rows.is_answered(work, task_id):
            row.root = answer.root
