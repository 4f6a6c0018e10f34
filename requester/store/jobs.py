"""Queries about jobs and their rounds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import and_, bindparam, exists, func, or_, select

from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.rules import overlap, stopping
from gradmarket.market.rules.stopping import StopAtPatience, StopAtSpent
from gradmarket.market.terms import JobState, RoundState, Units
from gradmarket.market.wire.poll import digest_of
from requester.store.among import is_in_bound_list
from requester.store.remembered import Remembered
from requester.store.round_sum import count_noised_rounds
from requester.store.tables import Account, Job, Round, Task
from requester.store.work import RowReader, Work

_SPECS: Final = Remembered[JobSpec]()
_PUBLICATIONS: Final = Remembered[Publication]()
_COSTS: Final = Remembered[tuple[int, int]]()


def load_spec(job: Job) -> JobSpec:
    """Returns the job's spec. The row's spec changes only before it is published, and it has no digest until then."""
    return _SPECS.get(job.spec_digest, lambda: JobSpec.model_validate(job.spec))


class RunningJob(NamedTuple):
    """The columns of a running job that stages read in a sweep. `under_way`: a round of it is open or being merged."""

    id: str
    spec: JobSpec
    under_way: bool


def running(reader: RowReader) -> list[RunningJob]:
    """Returns the running jobs that a sweep looks at, the oldest first; in one snapshot it asks for them once.

    While a round is under way, these are the jobs that are swept (tables.Job).

    A row is read whole only where its spec is not cached.
    """

    def spec_of_row(job_id: str) -> JobSpec:
        return JobSpec.model_validate(reader.session.scalar(_SPEC, {"job": job_id}))

    found: list[RunningJob] | None = reader.session.info.get(_SEEN)
    if found is None:
        rows = reader.session.execute(_RUNNING).all()
        found = [RunningJob(name, _SPECS.get(digest, partial(spec_of_row, name)), busy) for name, digest, busy in rows]
    if not isinstance(reader, Work):
        reader.session.info[_SEEN] = found
    return found


_SEEN: Final = "running jobs"
_SPEC: Final = select(Job.spec).where(Job.id == bindparam("job"))
_ROUND_UNDER_WAY: Final = exists().where(Round.job_id == Job.id, Round.state.in_([RoundState.OPEN, RoundState.MERGING]))
_RUNNING: Final = (
    select(Job.id, Job.spec_digest, _ROUND_UNDER_WAY)
    .where(Job.state == JobState.RUNNING, or_(Job.swept, ~_ROUND_UNDER_WAY))
    .order_by(Job.created_at)
)


def find_publication(job: Job) -> Publication | None:
    """Returns the publication that the job's workers compute from; None for a draft."""
    if job.spec_digest is None:
        return None
    return load_publication(job)


def load_publication(job: Job) -> Publication:
    """Returns the publication that the workers of a published job compute from."""
    return _PUBLICATIONS.get(job.spec_digest, lambda: Publication.model_validate(job.publication))


def find_task_costs(job: Job) -> tuple[int, int] | None:
    """Returns operations and bytes of one task, as its runner bounds them; None for a draft."""
    if job.spec_digest is None:
        return None
    return _COSTS.get(job.spec_digest, lambda: ((job.facts or {})["flops"], (job.facts or {})["peak_bytes"]))


def find_unit(reader: RowReader, job_id: str) -> str | None:
    """Returns the unit of the job's money; None where the job is unknown. Reads nothing else of it."""
    unit: str | None = reader.session.scalar(_UNIT, {"job": job_id})
    return unit


_UNIT: Final = select(Job.unit).where(Job.id == bindparam("job"))


def count_places(reader: RowReader, job: Job) -> int:
    """Returns the number of replicas that the newest round begins with."""
    parsed = load_spec(job)
    newest = latest_round(reader, job.id) if parsed.growth else None
    return parsed.sizes.of(newest.number if newest else 0) * parsed.fullest_plan.first_wave


def compute_reserve_per_gradient(job: Job) -> Units:
    """Returns the reserve for each gradient: its price, and the most that its worth may add to it."""
    later = load_spec(job).price.later
    return Units(job.price + (later // int(job.unit) if later else 0))


def round_cost(reader: RowReader, job: Job) -> Units:
    """Returns the price of all replicas of the newest round, were one of its tasks split to the end."""
    plan = load_spec(job).fullest_plan
    return Units((count_places(reader, job) + plan.maximum - plan.first_wave) * compute_reserve_per_gradient(job))


def spec_of(reader: RowReader, task: Task) -> JobSpec:
    """Returns the spec of the task's job; reads the job's row only where the spec is not cached."""
    digest = digest_of(task.offer.spec)
    return _SPECS.get(digest, lambda: JobSpec.model_validate(reader.get_one(Job, task.job_id).spec))


_OF_JOB: Final = Round.job_id == bindparam("job")
ROUNDS_UNDER_WAY: Final = (_OF_JOB, Round.state.in_([RoundState.OPEN, RoundState.MERGING]))
"""Conditions on a round of the job that is bound as `job`: it is open or being merged."""


@dataclass(frozen=True, slots=True)
class RoundsNow:
    """A job's rounds that are open or being merged, the oldest first, and its newest merged one."""

    under_way: Sequence[Round]
    closed: Round | None

    @property
    def following(self) -> int:
        """The number of the round that comes after all that were not rewound."""
        standing = [*self.under_way, *([self.closed] if self.closed else [])]
        return max((row.number for row in standing), default=-1) + 1


def rounds_now(reader: RowReader, job_id: str) -> RoundsNow:
    rows = reader.session.scalars(_NOW, {"job": job_id}).all()
    closed = [row for row in rows if row.state == RoundState.CLOSED]
    return RoundsNow([row for row in rows if row.state != RoundState.CLOSED], closed[0] if closed else None)


def stop_reason(reader: RowReader, job: Job, row: Round | None) -> str:
    """Returns why the job is over after `row`, its newest merged round; empty where it is not."""
    if row is None:
        return ""
    spec = load_spec(job)
    limited = any(isinstance(rule, StopAtSpent) for rule in spec.stop)
    spent = sum_earned_units(reader, job.id) * int(job.unit) if limited else 0
    noised = count_noised_rounds(reader, job.id, spec, row.number + 1)
    watched = any(isinstance(rule, StopAtPatience) for rule in spec.stop)
    earlier = reader.session.execute(_MEASURED, {"job": job.id, "round": row.number}).all() if watched else ()
    rounds = (*earlier, (row.number, row.metrics))
    due = spec.evaluation is not None and spec.evaluation.is_due
    measured = [metrics or ({} if due and due(number, spec.rounds) else None) for number, metrics in rounds]
    return stopping.find_stop_reason(spec.ending, row.number, measured, spent, noised)


_MEASURED: Final = (
    select(Round.number, Round.metrics)
    .where(_OF_JOB, Round.state == RoundState.CLOSED, Round.number < bindparam("round"))
    .order_by(Round.number)
)


def latest_round(reader: RowReader, job_id: str) -> Round | None:
    """Returns the newest round that was not rewound."""
    return reader.session.scalar(_LATEST, {"job": job_id})


_LATEST: Final = select(Round).where(_OF_JOB, Round.state != RoundState.REWOUND).order_by(Round.number.desc()).limit(1)


def is_task_wanted(reader: RowReader, job: Job, task: Task) -> bool:
    """Whether the job needs an answer to the task: it goes on, and the task's merge is neither done nor taken back."""
    taken_back = job.rewind_to is not None and task.round > overlap.last_unharmed(job.rewind_to, load_spec(job).overlap)
    row = reader.get(Round, (job.id, task.merge_round))
    return job.ended_at is None and not taken_back and may_merge(job, task, row)


def may_merge(job: Job, task: Task, row: Round | None) -> bool:
    """Whether `row`, the round that merges the task, is open, or, for one after the task's own, may open yet."""
    if task.merge_round > task.round and (row is None or row.state == RoundState.REWOUND):
        return job.ended_at is None
    return row is not None and row.state == RoundState.OPEN


def first_attempts(reader: RowReader, job_id: str, number: int) -> dict[int, int]:
    """Returns, by index, the attempt that a task of the round begins with: one after those before a rewind."""
    rows = reader.session.execute(_LAST_ATTEMPTS, {"job": job_id, "round": number})
    return {index: attempt + 1 for index, attempt in rows}


_LAST_ATTEMPTS: Final = (
    select(Task.index, func.max(Task.attempt))
    .where(Task.job_id == bindparam("job"), Task.round == bindparam("round"))
    .group_by(Task.index)
)


def list_ended_jobs(reader: RowReader, job_ids: Iterable[str]) -> Sequence[str]:
    return reader.session.scalars(_ENDED, {"jobs": list(job_ids)}).all()


_ENDED: Final = select(Job.id).where(is_in_bound_list(Job.id, "jobs"), Job.ended_at.is_not(None))


def ended_uncollected(reader: RowReader) -> Sequence[Job]:
    """Returns the ended jobs that still have payloads or snapshots stored."""
    return reader.session.scalars(_ENDED_UNCOLLECTED).all()


_ENDED_UNCOLLECTED: Final = select(Job).where(Job.ended_at.is_not(None), Job.replay_from.is_not(None))


def latest_closed(reader: RowReader, job_id: str) -> Round | None:
    return reader.session.scalar(_LATEST_CLOSED, {"job": job_id})


_CLOSED: Final = (_OF_JOB, Round.state == RoundState.CLOSED)
_LATEST_CLOSED: Final = select(Round).where(*_CLOSED).order_by(Round.number.desc()).limit(1)
_NEWEST_NUMBER: Final = select(func.max(Round.number)).where(*_CLOSED).scalar_subquery()
_NOW: Final = (
    select(Round).where(_OF_JOB, or_(*ROUNDS_UNDER_WAY[1:], Round.number == _NEWEST_NUMBER)).order_by(Round.number)
)


def newest_closed(reader: RowReader, job_ids: Iterable[str]) -> dict[str, Round]:
    """Returns the newest closed round of each job that has one."""
    return {row.job_id: row for row in reader.session.scalars(_NEWEST_CLOSED, {"jobs": list(job_ids)})}


_NUMBERS: Final = (
    select(Round.job_id, func.max(Round.number).label("number"))
    .where(is_in_bound_list(Round.job_id, "jobs"), Round.state == RoundState.CLOSED)
    .group_by(Round.job_id)
    .subquery()
)
_NEWEST_CLOSED: Final = select(Round).join(
    _NUMBERS, and_(Round.job_id == _NUMBERS.c.job_id, Round.number == _NUMBERS.c.number)
)


def sum_earned_units(reader: RowReader, job_id: str) -> int:
    """Returns the sum that the job's workers have earned, in units."""
    total: Any = reader.session.scalar(_EARNED, {"job": job_id})
    return int(total)


_EARNED: Final = select(func.coalesce(func.sum(Account.earned), 0)).where(Account.job_id == bindparam("job"))
"""Sums the accounts, which are few: each has the sum of its EARNED rows (store.earned_rows)."""
