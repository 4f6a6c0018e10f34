"""Queries about jobs and their rounds."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Integer, Select, and_, bindparam, exists, func, select
from sqlalchemy.orm import aliased

from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.job_fields import STALEST
from gradmarket.market.rules import overlap, stopping, stragglers
from gradmarket.market.terms import Digest, RoundState, TaskState, Units
from gradmarket.market.wire import digest_of
from gradmarket.requester.store.among import among
from gradmarket.requester.store.remembered import Remembered
from gradmarket.requester.store.tables import Earned, Job, Round, Task
from gradmarket.requester.store.work import RowReader

UNACCEPTED: Final = (
    TaskState.OPEN,
    TaskState.COMMITTING,
    TaskState.REVEALING,
    TaskState.UPLOADING,
    TaskState.DIVERGED,
)
"""While a round is open, one attempt at each index is in one of these states, or accepted."""
_SPECS: Final = Remembered[JobSpec]()
_PUBLICATIONS: Final = Remembered[Publication]()
_COSTS: Final = Remembered[tuple[int, int]]()


def spec(job: Job) -> JobSpec:
    """Returns the job's spec. The row's spec changes only before it is published, and it has no digest until then."""
    return _SPECS.get(job.spec_digest, lambda: JobSpec.model_validate(job.spec))


def publication(job: Job) -> Publication | None:
    """What its workers compute from; none of a draft."""
    if job.spec_digest is None:
        return None
    return _PUBLICATIONS.get(job.spec_digest, lambda: Publication.model_validate(job.publication))


def costs(job: Job) -> tuple[int, int] | None:
    """Operations and bytes of one task, as its runner bounds them; none of a draft. A publication tells both."""
    if job.spec_digest is None:
        return None
    return _COSTS.get(job.spec_digest, lambda: ((job.facts or {})["flops"], (job.facts or {})["peak_bytes"]))


def unit(reader: RowReader, job_id: str) -> str | None:
    """Of the job's money; none where there is no such job, of which nothing else is read."""
    unit: str | None = reader.session.scalar(_UNIT, {"job": job_id})
    return unit


_UNIT: Final = select(Job.unit).where(Job.id == bindparam("job"))


def places(reader: RowReader, job: Job) -> int:
    """Returns the number of replicas that the newest round begins with."""
    parsed = spec(job)
    newest = latest_round(reader, job.id) if parsed.growth else None
    return parsed.sizes.of(newest.number if newest else 0) * parsed.plan().first_wave


def covered(job: Job) -> Units:
    """Returns what a reservation has for each gradient: its price, and what its worth may add to it."""
    later = spec(job).price.later
    return Units(job.price + (later // int(job.unit) if later else 0))


def round_cost(reader: RowReader, job: Job) -> Units:
    """Returns the price of all replicas of the newest round, were one of its tasks split to the end."""
    plan = spec(job).plan()
    return Units((places(reader, job) + plan.maximum - plan.first_wave) * covered(job))


def spec_of(reader: RowReader, task: Task) -> JobSpec:
    """Returns the spec of the task's job; reads the job's row only where the spec is not cached."""
    digest = digest_of(task.offer.spec)
    return _SPECS.get(digest, lambda: JobSpec.model_validate(reader.get_one(Job, task.job_id).spec))


def has_open_round(reader: RowReader, job_id: str) -> bool:
    under_way = Round.state.in_([RoundState.OPEN, RoundState.MERGING])
    return bool(reader.session.scalar(select(exists().where(Round.job_id == job_id, under_way))))


def first_under_way(reader: RowReader, job_id: str) -> Round | None:
    """Returns the oldest round that is open or being merged: rounds are merged in order."""
    under_way = (Round.job_id == job_id, Round.state.in_([RoundState.OPEN, RoundState.MERGING]))
    return reader.session.scalar(select(Round).where(*under_way).order_by(Round.number).limit(1))


def stop_reason(reader: RowReader, job: Job) -> str:
    """Returns why the job is over after its newest merged round; empty where it is not."""
    row = latest_closed(reader, job.id)
    if row is None:
        return ""
    return stopping.reached(spec(job), row.number, row.metrics or {}, earned(reader, job.id) * int(job.unit))


def latest_round(reader: RowReader, job_id: str) -> Round | None:
    """Returns the newest round that was not rewound."""
    standing = select(Round).where(Round.job_id == job_id, Round.state != RoundState.REWOUND)
    return reader.session.scalar(standing.order_by(Round.number.desc()).limit(1))


def wants(reader: RowReader, job: Job, task: Task) -> bool:
    """Whether the job needs an answer to the task: it goes on, and the task's merge is neither done nor taken back."""
    taken_back = job.rewind_to is not None and task.round > overlap.last_unharmed(job.rewind_to, spec(job).overlap)
    row = reader.get(Round, (job.id, task.merge_round))
    return job.ended_at is None and not taken_back and may_merge(job, task, row)


def may_merge(job: Job, task: Task, row: Round | None) -> bool:
    """Whether `row`, the round that merges the task, is open, or, for one after the task's own, may open yet."""
    if task.merge_round > task.round and (row is None or row.state == RoundState.REWOUND):
        return job.ended_at is None
    return row is not None and row.state == RoundState.OPEN


def first_attempts(reader: RowReader, job_id: str, number: int) -> dict[int, int]:
    """Returns, by index, the attempt that a task of the round begins with: one after those before a rewind."""
    last = select(Task.index, func.max(Task.attempt)).where(Task.job_id == job_id, Task.round == number)
    return {index: attempt + 1 for index, attempt in reader.session.execute(last.group_by(Task.index))}


def ended(reader: RowReader, job_ids: Iterable[str]) -> Sequence[str]:
    return reader.session.scalars(_ENDED, {"jobs": list(job_ids)}).all()


_ENDED: Final = select(Job.id).where(among(Job.id, "jobs"), Job.ended_at.is_not(None))


def latest_closed(reader: RowReader, job_id: str) -> Round | None:
    closed = select(Round).where(Round.job_id == job_id, Round.state == RoundState.CLOSED)
    return reader.session.scalar(closed.order_by(Round.number.desc()).limit(1))


def newest_closed(reader: RowReader, job_ids: Iterable[str]) -> dict[str, Round]:
    """By job, where it has one."""
    return {row.job_id: row for row in reader.session.scalars(_NEWEST_CLOSED, {"jobs": list(job_ids)})}


_NUMBERS: Final = (
    select(Round.job_id, func.max(Round.number).label("number"))
    .where(among(Round.job_id, "jobs"), Round.state == RoundState.CLOSED)
    .group_by(Round.job_id)
    .subquery()
)
_NEWEST_CLOSED: Final = select(Round).join(
    _NUMBERS, and_(Round.job_id == _NUMBERS.c.job_id, Round.number == _NUMBERS.c.number)
)


def earned(reader: RowReader, job_id: str) -> int:
    """All that the job's workers have earned, in units."""
    total: Any = reader.session.scalar(_EARNED, {"job": job_id})
    return int(total)


_EARNED: Final = select(func.coalesce(func.sum(Earned.units), 0)).where(Earned.job_id == bindparam("job"))


def lacks(reader: RowReader, job: Job, number: int, most: int = 1) -> int:
    """Returns how many accepted tasks the round lacks to be merged, up to `most`; reads few further rows."""
    own = spec(job)
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
"""Unaccepted tasks whose rows were first in line in one of these rounds."""


def newest_snapshot(reader: RowReader, job_id: str, before: int) -> Round | None:
    """Returns the newest closed round before `before` whose optimizer state is stored."""
    return reader.session.scalar(_snapshots(job_id, before).order_by(Round.number.desc()).limit(1))


def snapshots(reader: RowReader, job_id: str, before: int) -> Sequence[Round]:
    """Returns closed rounds before `before` whose optimizer state is stored, in order."""
    return reader.session.scalars(_snapshots(job_id, before).order_by(Round.number)).all()


def _snapshots(job_id: str, before: int) -> Select[Round]:
    stored = (Round.job_id == job_id, Round.state == RoundState.CLOSED, Round.optimizer_state != "")
    return select(Round).where(*stored, Round.number < before)


def closed_between(reader: RowReader, job_id: str, after: int, before: int) -> Sequence[Round]:
    """Returns the closed rounds after `after` and before `before`, in order."""
    between = (Round.number > after, Round.number < before, Round.state == RoundState.CLOSED)
    return reader.session.scalars(select(Round).where(Round.job_id == job_id, *between).order_by(Round.number)).all()


def started_from(reader: RowReader, job_id: str, number: int, most: int) -> Sequence[Digest]:
    """Returns the parameters that the last rounds before this one started from, the latest first."""
    earlier = select(Round.parameters).where(Round.job_id == job_id, Round.number < number)
    return reader.session.scalars(earlier.order_by(Round.number.desc()).limit(most)).all()


def used_tasks(reader: RowReader, job_id: str, number: int) -> Sequence[Task]:
    """Returns the tasks whose answers are merged in the round."""
    used = select(Task).where(*merged_in(job_id, number), Task.used)
    return reader.session.scalars(used.order_by(Task.index)).all()


def merged_in(job_id: str, number: int) -> tuple[ColumnElement[bool], ...]:
    """Conditions: the task is for the merge of this round, and so of it or of one of the last rounds before."""
    late = Task.round >= number - STALEST, Task.round <= number
    return Task.job_id == job_id, *late, Task.merge_round == number


def merged_payloads(reader: RowReader, job: Job, through: int) -> list[str]:
    """Returns the payloads that are kept to be merged again, of rounds up to `through`."""
    recent = Task.round >= (job.replay_from or 0) - STALEST, Task.round <= through
    merged = (Task.job_id == job.id, Task.used, *recent, Task.merge_round.between(job.replay_from, through))
    return [payload for payload in reader.session.scalars(select(Task.payload).where(*merged)) if payload]
