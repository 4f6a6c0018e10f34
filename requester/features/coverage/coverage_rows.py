"""Which of a job's tasks are in its updates, by the place of their rows (JobSpec.place). The rule:
features.coverage."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, bindparam, case, func, select

from requester.store import jobs, tasks
from requester.store.tables import Job, Task
from requester.store.work import RowReader


@dataclass(frozen=True, slots=True)
class Covered:
    """Counts of a job's tasks: those in updates, those in a later update than their round's, and those that wait.

    `whole`: how many are in updates from the first in line on, without one left out.
    """

    used: int
    late: int
    waiting: int
    whole: int


def count_covered(reader: RowReader, job: Job) -> Covered | None:
    """Returns the books of a job that takes its rows by epochs; None for another."""
    newest = jobs.latest_round(reader, job.id) if jobs.load_spec(job).by_epochs else None
    if newest is None:
        return None
    used, late = reader.session.execute(_USED, {"job": job.id}).one()
    left = tasks.left_before(reader, job.id, newest.number + 1)
    return Covered(used, int(late or 0), len(left), min(left, default=used))


_USED: Final = select(func.count(), func.sum(case((Task.merge_round > Task.round, 1), else_=0))).where(
    Task.job_id == bindparam("job"), Task.used
)


def count_by_partition(reader: RowReader, job: Job, partitions: int) -> dict[int, int]:
    """Returns how many tasks in updates had their rows of each training partition, by its number."""
    if not partitions:  # a private job's rows are its holders'
        return {}
    spec = jobs.load_spec(job)
    place: ColumnElement[int] = Task.index + spec.tasks_before  # JobSpec.place of a task
    if not spec.by_epochs:
        stages = reversed(spec.sizes.stages)
        before = [(Task.round >= one.first, one.before + (Task.round - one.first) * one.tasks) for one in stages]
        place = case(*before) + place
    number = (place % partitions).label("number")
    rows = select(number, func.count()).where(Task.job_id == job.id, Task.used).group_by(number)
    return {int(index): count for index, count in reader.session.execute(rows)}
