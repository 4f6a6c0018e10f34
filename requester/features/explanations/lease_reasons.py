"""Why a worker gets no lease just now: one reason, in words that name what would change it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select

from gradmarket.market.features.explanations import in_words
from gradmarket.market.features.proven import seat_rules
from gradmarket.market.features.proven.seat_rules import Newcomer
from gradmarket.market.rules import assignment
from gradmarket.market.rules.assignment import Candidate, Idle, Mixable, Opening, Reason
from gradmarket.market.terms import Address, TaskState
from requester.feature import choose_pool
from requester.features.explanations import job_waits
from requester.features.proven import joining, seats
from requester.moves.candidates import OpenPlaces
from requester.store import ballots, jobs, progress, tasks, workers
from requester.store.answer_kind import answer_kind_of
from requester.store.progress import admit_returners, candidates_of, opening_for
from requester.store.tables import Account, Job, Replica, Task, Worker
from requester.store.work import RowReader

MOST_JOBS: Final = 16
"""Most running jobs that are looked at; with more, the answer would take longer and name one of them all the same."""
MOST_TASKS: Final = 8
OWN_PAY_WAITS: Final = "; its pay for {:.0f} gradients waits until audits score enough of its operator's answers"
OF_ITS_OWN: Final = (Reason.NO_HOLDER, Reason.OTHER_JOB, Reason.HIGHER_PRICE, Reason.OTHER_CLASS)
"""Reasons that are news only where no other job has a better one: the worker chose not to serve this job."""


@dataclass(frozen=True, slots=True)
class LeaseReason:
    """`words` start with the job's name, where the reason is one of a job."""

    kind: Reason | Idle
    words: str


@dataclass(frozen=True, slots=True)
class Chance:
    """An open task that the worker might get."""

    task: Task
    replicas: Sequence[Replica]
    opening: Opening


def find_lease_reason(reader: RowReader, address: str, now: float) -> LeaseReason:
    """Returns why the worker gets no lease: of the jobs with an open task, the first that it would serve decides."""
    worker, found = reader.get_one(Worker, address), None
    running = job_waits.list_running_jobs(reader)
    for job in running[:MOST_JOBS]:
        reason = _find_reason_in_job(reader, job, worker, now)
        if reason is not None and reason.kind not in OF_ITS_OWN:
            return reason
        found = found or reason
    return found or _describe_no_open_task(reader, running, now)


def _describe_no_open_task(reader: RowReader, running: Sequence[Job], now: float) -> LeaseReason:
    for job in running[:MOST_JOBS]:
        if waits := job_waits.why_waiting(reader, job, now):
            return LeaseReason(Idle.WAITS, f"{jobs.load_spec(job).name}: {waits}")
    if running:
        return LeaseReason(Idle.NO_TASK, Idle.NO_TASK)
    paused, unfunded = job_waits.count_held_up_jobs(reader)
    if not paused + unfunded:
        return LeaseReason(Idle.NO_JOB, Idle.NO_JOB)
    return LeaseReason(Idle.HELD_UP, Idle.HELD_UP.format(paused, unfunded))


def _find_reason_in_job(reader: RowReader, job: Job, worker: Worker, now: float) -> LeaseReason | None:
    """Returns the reason in one job; None where no task of it is open."""
    mixable = ballots.list_mixable_classes(reader, job, now)
    (candidate,) = candidates_of(reader, job, [worker], now)
    # the open task that the worker is closest to
    opened = list_open(reader, job.id, MOST_TASKS)
    replicas, busy = (
        tasks.replicas_of(reader, opened),
        answer_kind_of(reader, job).list_unavailable_by_round(reader, job, opened),
    )
    chances = list[Chance]()
    for task in opened:
        theirs, away = replicas[task.id], busy[task.round]
        opening = opening_for(job, task, theirs, mixable if job.determinism_class else assignment.ALL, away)
        chances.append(Chance(task, theirs, admit_returners(reader, job, opening, theirs, now, away)))
    chance = min(
        chances, default=None, key=lambda one: assignment.why_not(candidate, one.opening) not in assignment.SOON
    )
    if chance is None:
        return None
    kind, words = _explain_chance(reader, job, candidate, chance, mixable, now)
    account = reader.get(Account, (job.id, worker.address))
    if account is not None and account.waiting:
        words += OWN_PAY_WAITS.format(account.waiting / job.price)
    return LeaseReason(kind, words if kind is Idle.CHAIN else f"{jobs.load_spec(job).name}: {words}")


def _explain_chance(
    reader: RowReader, job: Job, candidate: Candidate, chance: Chance, mixable: Mixable, now: float
) -> tuple[Reason | Idle, str]:
    """Returns the obstacle between worker and task; else the job's lack, and last the workers that come first."""
    reason, worker = assignment.why_not(candidate, chance.opening), candidate.party.worker
    if reason is Reason.AT_CAPACITY and not job_waits.any_in_flight(reader, [worker]):
        return Idle.ASKS_NOTHING, Idle.ASKS_NOTHING
    if reason not in (None, Reason.NO_RESERVATION):
        return reason, in_words(candidate, chance.opening) or reason
    if reason is not None and (trouble := job_waits.chain_trouble(reader)):
        return Idle.CHAIN, trouble
    if queued := _describe_newcomer(reader, job, worker, mixable, now):
        return Idle.QUEUED, queued
    if lack := _describe_lack(reader, job, chance.task, mixable, now):
        return Idle.WAITS, lack
    if reason is not None:
        if locked := job_waits.describe_locked_money(reader, job, workers.list_live_workers(reader, now)):
            return Idle.SPENT, f"{reason}: {locked}"
        if job_waits.count_free_units(reader, job) < jobs.compute_reserve_per_gradient(job):
            return Idle.SPENT, Idle.SPENT
        return reason, reason
    before = _find_preferred(reader, job, candidate, chance, mixable, now)
    before = before or (Idle.OTHERS_DRAWN if chance.opening.parties else Idle.TOO_FEW)
    return before, before


def _describe_lack(reader: RowReader, job: Job, task: Task, mixable: Mixable, now: float) -> str:
    if job.determinism_class is None:
        return job_waits.why_waiting(reader, job, now)
    return job_waits.describe_lack(reader, job, task, mixable, now)


def _find_preferred(
    reader: RowReader, job: Job, candidate: Candidate, chance: Chance, mixable: Mixable, now: float
) -> Idle | None:
    """Returns why others are drawn where the worker could be."""
    task, opening = chance.task, chance.opening
    count = progress.count_open_places(task, chance.replicas)
    pool = choose_pool(reader, job, now)(reader, job, [candidate], mixable, now)
    return pool.explain_no_place(candidate, OpenPlaces(task, chance.replicas, opening, count, task.secret))


def _describe_newcomer(reader: RowReader, job: Job, worker: Address, mixable: Mixable, now: float) -> str:
    """Returns a newcomer's place in the job's queue and when it has a seat; empty where it is in none."""
    queue = joining.list_queue(reader, job, mixable, now)
    place = next((place for place, one in enumerate(queue, 1) if one.party.worker == worker), None)
    if place is None:
        return ""
    if paused := _describe_pause(reader, job, queue[place - 1], mixable, now):
        return f"{paused}, and it is at place {place} of {len(queue)} newcomers"
    spec, row = jobs.load_spec(job), jobs.latest_round(reader, job.id)
    share = joining.load_share(reader, job, mixable, now)
    tasks_now = spec.sizes.of(row.number if row else 0)
    rounds = seat_rules.count_rounds_until_seat(queue, worker, tasks_now, share)
    took = (now - job.created_at) / row.number if row and row.number else None
    time = f", {describe_seconds(rounds * took)} as rounds go" if took else ""
    return (
        f"newcomers get one task in {share}, in turn, until {spec.proof} answers of theirs passed an audit, counted "
        f"by what they cost beside this job's: it is at place {place} of {len(queue)}, and its pay may be expected "
        f"within {rounds} round{'s' * (rounds > 1)}{time}"
    )


def _describe_pause(reader: RowReader, job: Job, one: Newcomer, mixable: Mixable, now: float) -> str:
    """Describes the left place that keeps a newcomer from a seat, and for how long; empty where none does."""
    spec = jobs.load_spec(job)
    votes = spec.replication.replicas
    if not one.is_unknown or seats.count_proven(reader, job, mixable, now, votes) < votes:
        return ""
    left = seat_rules.find_pausing_place(one.party, seats.list_watched_places(reader, job, now))
    if left is None:
        return ""
    subject = "it" if left.operator == one.party.operator else "a newcomer of its network"
    rest = left.at + seat_rules.compute_watched_s(spec.deadlines.lease_s) - now
    return f"{subject} left a place of this job: without a deposit it gets the next one in {describe_seconds(rest)}"


def describe_seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def list_open(reader: RowReader, job_id: str, most: int) -> Sequence[Task]:
    """Returns up to `most` open tasks, the latest waves first."""
    found = select(Task).where(Task.job_id == job_id, Task.state == TaskState.OPEN)
    return reader.session.scalars(found.order_by(Task.wave.desc(), Task.round, Task.index).limit(most)).all()
