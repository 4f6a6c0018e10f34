"""Which answers of a job may be published: applies the rule of market.rules.lifecycle to its rows."""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, and_, bindparam, false, func, not_, or_, select, true

from gradmarket.market.rules import lifecycle
from gradmarket.market.terms import RoundState, TaskState
from requester.store import jobs, merges
from requester.store.review import is_reviewed
from requester.store.tables import Job, Round, Task
from requester.store.work import RowReader

_SETTLED: Final = (TaskState.ACCEPTED, TaskState.FINAL)


@dataclass(frozen=True)
class Disclosure:
    """The facts about a job, as of one transaction, by which its answers may be published."""

    first_open: int | None
    reviewed: bool
    overlap: int = 0

    def is_round_final(self, number: int) -> bool:
        """Whether no task of the round will be done again."""
        return self.first_open is None or lifecycle.is_round_standing(number, self.first_open, self.overlap)

    def of(self, task: Task | Row[*tuple[Any, ...]]) -> bool:
        """Returns whether the answer of the task, or of a row with its state, reason and round, may be published."""
        state, wrong = task.state, is_diverged(task)
        return lifecycle.may_publish_answer(state, wrong, task.round, self.first_open, self.reviewed, self.overlap)

    @property
    def tasks(self) -> ColumnElement[bool]:
        """Returns the condition for the job's tasks whose answers may be published; agrees with `of`."""
        if self.first_open is None:
            return true()
        apart = Task.round > self.overlap if self.overlap else true()
        stands = Task.round < self.first_open if self.first_open > self.overlap else false()
        return stands if self.reviewed else or_(stands, and_(Task.state.in_(_SETTLED), not_(_DIVERGED), apart))


def is_diverged(task: Task | Row[*tuple[Any, ...]]) -> bool:
    """Returns whether the task's accepted gradient was unusable: a job that goes on has the task done again."""
    return task.state == TaskState.DIVERGED or (task.state == TaskState.FINAL and task.reason != "")


_DIVERGED: Final = or_(Task.state == TaskState.DIVERGED, and_(Task.state == TaskState.FINAL, Task.reason != ""))


def of_job(reader: RowReader, job: Job) -> Disclosure:
    spec = jobs.load_spec(job)
    reviewed = is_reviewed(job)
    if job.ended_at is not None:
        return Disclosure(None, reviewed)
    rounds = [reader.session.scalar(_UNFINISHED, {"job": job.id})]
    if jobs.load_spec(job).staleness:
        rounds += [reader.session.scalar(_LATE, {"job": job.id})]
    if reviewed:
        rounds += [reader.session.scalar(_REVOCABLE, {"job": job.id}), job.rewind_to]
    first_open = min((number for number in rounds if number is not None), default=None)
    return Disclosure(first_open, reviewed, spec.overlap)


_UNFINISHED: Final = select(func.min(Round.number)).where(
    Round.job_id == bindparam("job"), Round.state != RoundState.CLOSED
)
_LATE: Final = select(func.min(Task.round)).where(Task.job_id == bindparam("job"), Task.state.in_(merges.UNACCEPTED))
"""The first round with an unaccepted task, perhaps merged already: more workers may answer the task."""
_REVOCABLE: Final = select(func.min(Task.round)).where(
    Task.job_id == bindparam("job"), Task.state == TaskState.ACCEPTED
)
