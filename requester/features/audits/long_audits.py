"""Orders audits of merged answers that are far longer than their round's others (audits.long_answers)."""

from collections.abc import Sequence
from typing import Final

from gradmarket.market.features.audits import long_answers
from requester.feature import MergeWatch
from requester.features.audits import audit_draws, audit_rows
from requester.store import jobs
from requester.store.review import is_reviewed
from requester.store.tables import Job, Round, Task
from requester.store.work import Work

LONG: Final = "it is far longer than its round's others"


class LengthWatch(MergeWatch):
    """`tasks`: those of the merge whose answers are long."""

    def __init__(self, tasks: Sequence[str]) -> None:
        self._tasks = tasks

    def close(self, work: Work, job: Job, row: Round, now: float) -> None:
        unaudited = jobs.load_spec(job).unaudited_plans
        for task in audit_rows.lock_unaudited_tasks(work, self._tasks) if job.ended_at is None else ():
            if task.plan not in unaudited:
                audit_draws.create_audit(work, task, 1.0, LONG, now)


def watch_lengths(job: Job, used: Sequence[Task]) -> LengthWatch | None:
    """Returns the watch of a merge that has long answers. No audit of a scored job proves that an answer is wrong."""
    if not is_reviewed(job) or jobs.load_spec(job).verifier.scored:
        return None
    found = long_answers.list_long_answers({task.id: task.norm for task in used if task.norm is not None})
    return LengthWatch(found) if found else None
