"""Queries about the inputs of a round's merge: its answers, and the rounds before it."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import BindParameter, ColumnElement, Integer, String, bindparam, exists, select
from sqlalchemy.orm import aliased

from gradmarket.market.job_fields import STALEST
from gradmarket.market.rules import stragglers
from gradmarket.market.terms import RoundState, TaskState
from requester.store import jobs
from requester.store.tables import Job, Round, Task
from requester.store.work import RowReader

UNACCEPTED: Final = (
    TaskState.OPEN,
    TaskState.COMMITTING,
    TaskState.REVEALING,
    TaskState.REFERRED,
    TaskState.UPLOADING,
    TaskState.DIVERGED,
)
"""While a round is open, one attempt at each index is in one of these states, or accepted."""


def count_missing_answers(reader: RowReader, job: Job, number: int, most: int = 1) -> int:
    """Returns how many accepted tasks the round lacks to be merged, up to `most`; reads few further rows."""
    own = jobs.load_spec(job)
    may_miss = own.tasks_per_round - own.tasks_needed
    parameters = {"job": job.id, "round": number, "most": may_miss + most}
    few = max(0, len(reader.session.scalars(_UNACCEPTED, parameters).all()) - may_miss)
    if few >= most or not own.leaves_tasks:
        return few
    since = stragglers.due_since(number, own.rounds, own.staleness)
    due = {"job": job.id, "round": number, "most": most, "since": since}
    return max(few, len(reader.session.scalars(_DUE, due).all()))


_UNACCEPTED: Final = (
    select(Task.id)
    .where(Task.job_id == bindparam("job"), Task.merge_round == bindparam("round"), Task.state.in_(UNACCEPTED))
    .limit(bindparam("most", type_=Integer))
)
_FIRST: Final = aliased(Task)
_DUE: Final = _UNACCEPTED.where(
    exists().where(
        _FIRST.job_id == Task.job_id,
        _FIRST.index == Task.index,
        _FIRST.round <= bindparam("since", type_=Integer),
        _FIRST.round >= bindparam("since", type_=Integer) - STALEST,
    )
)
"""Unaccepted tasks whose rows a task of one of these rounds had first."""


def newest_snapshot(reader: RowReader, job_id: str, before: int) -> Round | None:
    """Returns the newest closed round before `before` whose optimizer state is stored."""
    return reader.session.scalar(_NEWEST_SNAPSHOT, {"job": job_id, "before": before})


def list_snapshot_rounds(reader: RowReader, job_id: str, before: int) -> Sequence[Round]:
    """Returns closed rounds before `before` whose optimizer state is stored, in order."""
    return reader.session.scalars(_SNAPSHOTS, {"job": job_id, "before": before}).all()


_STORED: Final = select(Round).where(
    Round.job_id == bindparam("job"),
    Round.state == RoundState.CLOSED,
    Round.optimizer_state != "",
    Round.number < bindparam("before"),
)
_SNAPSHOTS: Final = _STORED.order_by(Round.number)
_NEWEST_SNAPSHOT: Final = _STORED.order_by(Round.number.desc()).limit(1)


def closed_between(reader: RowReader, job_id: str, after: int, before: int) -> Sequence[Round]:
    """Returns the closed rounds after `after` and before `before`, in order."""
    between = (Round.number > after, Round.number < before, Round.state == RoundState.CLOSED)
    return reader.session.scalars(select(Round).where(Round.job_id == job_id, *between).order_by(Round.number)).all()


def used_tasks(reader: RowReader, job_id: str, number: int) -> Sequence[Task]:
    """Returns the tasks whose answers are merged in the round."""
    return reader.session.scalars(_USED, {"job": job_id, "round": number}).all()


def merged_in(job_id: str | BindParameter[str], number: int | BindParameter[int]) -> tuple[ColumnElement[bool], ...]:
    """Returns the conditions that the task is for this round's merge: one of the round or of the last rounds before."""
    late = Task.round >= number - STALEST, Task.round <= number
    return Task.job_id == job_id, *late, Task.merge_round == number


_MERGED: Final = merged_in(bindparam("job", type_=String), bindparam("round", type_=Integer))
_USED: Final = select(Task).where(*_MERGED, Task.used).order_by(Task.round, Task.index)


def accepted_tasks(reader: RowReader, job_id: str, number: int) -> Sequence[Task]:
    """Returns the accepted tasks that are for the merge of the round."""
    return reader.session.scalars(_ACCEPTED, {"job": job_id, "round": number}).all()


_ACCEPTED: Final = select(Task).where(*_MERGED, Task.state == TaskState.ACCEPTED)


def merged_payloads(reader: RowReader, job: Job, through: int) -> list[str]:
    """Returns the payloads that are kept to be merged again, of rounds up to `through`."""
    between = {"job": job.id, "first": job.replay_from or 0, "through": through}
    return [payload for payload in reader.session.scalars(_PAYLOADS, between) if payload]


_FROM: Final = bindparam("first", type_=Integer)
_THROUGH: Final = bindparam("through", type_=Integer)
_PAYLOADS: Final = select(Task.payload).where(
    Task.job_id == bindparam("job"),
    Task.used,
    Task.round >= _FROM - STALEST,
    Task.round <= _THROUGH,
    Task.merge_round.between(_FROM, _THROUGH),
)
