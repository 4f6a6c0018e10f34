"""Queries for market.rules.newcomers: the next workers to get money reserved, and the newcomers that a job tries at
once.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from secrets import randbelow
from typing import Any, Final

from sqlalchemy import ColumnElement, Integer, Select, and_, bindparam, case, exists, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute

from gradmarket.market.rules import assignment, newcomers
from gradmarket.market.rules.assignment import Mixable, Party
from gradmarket.market.rules.lifecycle import IN_FLIGHT
from gradmarket.market.rules.newcomers import Tried
from gradmarket.market.terms import Address, JobId, TaskState, Units
from requester.store import ballots, jobs, progress, tasks, workers
from requester.store.answer_kind import answer_kind_of
from requester.store.tables import Account, Job, Replica, Task, Worker
from requester.store.work import RowReader

SAMPLE: Final = 256
"""Most asking workers looked at: in turn over their owners, at random within a turn."""
DIGITS: Final = 32
"""The digits of an address at which an order may begin; eight follow the last of them."""
TASKS: Final = 64
NEW: Final = Worker.accepted_at.is_(None)


def list_known_parties(reader: RowReader, job: Job, mixable: Mixable, now: float) -> list[Party]:
    """Returns live workers that could share the job's tasks and delivered before; at most SAMPLE of them."""
    beside = assignment.list_comparable_classes(job.determinism_class or "", mixable)
    return [workers.build_party(row) for row in reader.session.execute(_SOME_KNOWN, workers.asked_of(job, now, beside))]


_SOME_KNOWN: Final = workers.PRESENT.where(workers.KNOWN).limit(SAMPLE)


def count_tried(reader: RowReader, job: Job, now: float) -> Tried:
    totals = reader.session.execute(_TRIED, {"job": job.id}).one()
    deadlines = jobs.load_spec(job).deadlines
    stall_s = float(max(deadlines.lease_s, deadlines.wave_s, deadlines.upload_s))
    since = now - (totals.last or 0.0)
    return Tried(jobs.count_places(reader, job), int(totals.stalled or 0), int(totals.delivered or 0), since, stall_s)


def _count_where(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0))


_STALLED: Final = and_(Account.earned == 0, Account.stalls > 0)
_TRIED: Final = select(
    _count_where(_STALLED).label("stalled"),
    _count_where(Account.earned > 0).label("delivered"),
    func.max(case((_STALLED, Account.stalled_at))).label("last"),
).where(Account.job_id == bindparam("job"))


def in_flight(reader: RowReader, job: Job) -> int:
    """Counts the newcomers that hold a place in the job."""
    return reader.session.scalar(_IN_FLIGHT, {"job": job.id}) or 0


_IN_FLIGHT: Final = (
    select(func.count(Replica.worker.distinct()))
    .join(Worker, Worker.address == Replica.worker)
    .where(Replica.job_id == bindparam("job"), Replica.state.in_(IN_FLIGHT), NEW)
)


def sum_left_units(reader: RowReader, job: Job, now: float) -> Units:
    """Returns the units reserved, beyond their earnings, for earners of the job that are gone."""
    return Units(int(reader.session.scalar(_LEFT, {"job": job.id, "now": now}) or 0))


_LEFT: Final = (
    select(func.sum(Account.reserved - Account.earned))
    .join(Worker, Worker.address == Account.worker)
    .where(Account.job_id == bindparam("job"), Account.earned > 0, Account.reserved > Account.earned, ~workers.LIVE)
)


def next_covered(reader: RowReader, job: Job, now: float) -> list[Address]:
    """Returns the workers for which a gradient's price is reserved now, in random order.

    They have earned nothing in the job, and their number is bounded by its rule; a feature may have another order.
    """
    if job.determinism_class is None:
        return []
    mixable = ballots.list_mixable_classes(reader, job, now)
    beside = assignment.list_comparable_classes(job.determinism_class, mixable)
    if not reader.session.scalar(_ANY_UNCOVERED, workers.asked_of(job, now, beside)):
        return []  # as after most draws where several jobs share the workers
    for feature in reader.session.info["features"]:
        listed: list[Address] | None = feature.list_next_covered(reader, job, mixable, now)
        if listed is not None:
            return listed
    drawn = list[Address]()
    for known in (True, False):
        most = _count_by_money(reader, job, known, now)
        if most > 0 and not known:
            most = min(most, _count_wanted_newcomers(reader, job, mixable, now))
        if most > 0:
            rows = load_content_workers(reader, job, _DRAWN[known], ask_in_turn(job, mixable, now))
            drawn += [party.worker for party in newcomers.in_turn(map(workers.build_party, rows))][:most]
    return drawn


def _count_by_money(reader: RowReader, job: Job, known: bool, now: float) -> int:
    held, last = reader.session.execute(_HELD, {"job": job.id, "known": known}).one()
    left = newcomers.compute_allowance(Units(job.deposited), jobs.round_cost(reader, job)) - int(held or 0)
    count, lease_s = left // jobs.compute_reserve_per_gradient(job), jobs.load_spec(job).deadlines.lease_s
    return newcomers.count_reservable(count, compute_stood_s(reader, job, last, now), lease_s)


def compute_stood_s(reader: RowReader, job: Job, reserved_at: float | None, now: float) -> float:
    """Returns the seconds since the newest round was opened, and since `reserved_at`, if that is later; 0 without a
    round.
    """
    row = jobs.latest_round(reader, job.id)
    return 0.0 if row is None else max(0.0, now - max(row.opened_at, reserved_at or 0.0))


_HELD: Final = (
    select(func.sum(Account.reserved), func.max(Account.reserved_at))
    .join(Worker, Worker.address == Account.worker)
    .where(Account.job_id == bindparam("job"), Account.earned == 0, Account.reserved > 0)
    .where(Worker.accepted_at.is_not(None) == bindparam("known"))
)
_SPENT: Final = exists().where(
    Replica.worker == Worker.address,
    Replica.state.not_in(IN_FLIGHT),
    Task.id == Replica.task_id,
    Task.job_id == bindparam("job"),
    Task.state == TaskState.OPEN,
)
"""It gave back its place in an attempt that still wants workers, so this attempt draws it no more."""


def _count_wanted_newcomers(reader: RowReader, job: Job, mixable: Mixable, now: float) -> int:
    """Returns the number of further newcomers that the job can use.

    That is the number missing to those that it tries at once, or the number that its open tasks lack besides those at
    work: a split task needs more workers than a round begins with.
    """
    known = list_known_parties(reader, job, mixable, now)
    beside = assignment.list_comparable_classes(job.determinism_class or "", mixable)
    # with money reserved, there, with room and without a place
    idle = [workers.build_party(row) for row in reader.session.execute(_IDLE, workers.asked_of(job, now, beside))]
    first_wave = jobs.load_spec(job).plan().first_wave
    nothing = assignment.Opening(JobId(job.id), frozenset(), (), "", Units(0), jobs.load_spec(job).separation)
    trials = jobs.count_places(reader, job)
    if newcomers.may_fill_places(known, nothing, first_wave):
        trials = newcomers.at_once(count_tried(reader, job, now))
    missing = trials - in_flight(reader, job) - len(idle)
    openings = [(opening, places) for _task, opening, places in _list_openings(reader, job, mixable)]
    return max(missing, newcomers.count_lacking_places(known, idle, openings))


_IDLE: Final = workers.PRESENT.where(
    NEW, workers.HERE, Worker.capacity > 0, workers.COVERED, ~workers.BUSY, ~_SPENT
).limit(SAMPLE)


def _list_openings(reader: RowReader, job: Job, mixable: Mixable) -> list[tuple[Task, assignment.Opening, int]]:
    """Returns open tasks with their openings and their numbers of free places."""
    open_ = select(Task).where(Task.job_id == job.id, Task.state == TaskState.OPEN)
    rows = reader.session.scalars(open_.order_by(Task.wave.desc()).limit(TASKS)).all()
    replicas, busy = (
        tasks.replicas_of(reader, rows),
        answer_kind_of(reader, job).list_unavailable_by_round(reader, job, rows),
    )
    return [
        (
            task,
            progress.opening_for(job, task, replicas[task.id], mixable, busy[task.round]),
            progress.count_open_places(task, replicas[task.id]),
        )
        for task in rows
    ]


@dataclass(frozen=True, slots=True)
class PlacesLeft:
    """The places in a job for which a worker may still be drawn: of tasks `open` now, and of rounds `to_come`."""

    open: int
    to_come: int


def count_places_left(
    reader: RowReader, job: Job, asked: Iterable[str], most: int, now: float
) -> dict[str, PlacesLeft]:
    """Counts the places left for each worker, up to `most` of rounds to come; a holder has one place in a round."""
    spec, newest = jobs.load_spec(job), jobs.latest_round(reader, job.id)
    to_come = 0
    for number in range(0 if newest is None else newest.number + 1, spec.rounds):
        if to_come >= most:
            break
        to_come += len(spec.tasks_of(number)) if spec.repeatable else 1
    openings = _list_openings(reader, job, ballots.list_mixable_classes(reader, job, now))
    left = {}
    for worker in asked:
        untried = [task for task, opening, places in openings if places > 0 and worker not in opening.tried]
        open_now = len(untried) if spec.repeatable else len({task.round for task in untried})
        left[worker] = PlacesLeft(open_now, to_come)
    return left


def ask_in_turn(job: Job, mixable: Mixable, now: float) -> dict[str, Any]:
    beside = assignment.list_comparable_classes(job.determinism_class or "", mixable)
    return workers.asked_of(job, now, beside) | {"digit": 3 + randbelow(DIGITS)}


def load_content_workers(reader: RowReader, job: Job, statement: Select[Worker], asked: dict[str, Any]) -> list[Worker]:
    rows = reader.session.scalars(statement, asked)
    return [row for row in rows if workers.is_serving_job(row, job.id) and workers.asks_of(row, job) <= job.price]


def _number_per_owner(column: InstrumentedAttribute[Any]) -> ColumnElement[int]:
    """Numbers the selected workers with the same value of the column, from 1 on.

    The order is one for all columns, by the addresses from a random digit on: random() would give each column an order
    of its own, and no worker would be the first of both its payout address and its network.
    """
    digits = func.substr(Worker.address, bindparam("digit", type_=Integer))
    return func.row_number().over(partition_by=column, order_by=(digits, Worker.address))


_BY_PAYOUT: Final = _number_per_owner(Worker.payout)
_BY_NETWORK: Final = case((Worker.network.is_(None), 1), else_=_number_per_owner(Worker.network))
TURN: Final = case((_BY_PAYOUT > _BY_NETWORK, _BY_PAYOUT), else_=_BY_NETWORK)
"""The turn in which a worker comes among all selected, before any is left out (market.rules.newcomers.in_turn)."""
COVERED: Final = exists().where(
    Account.job_id == bindparam("job"),
    Account.worker == Worker.address,
    or_(Account.earned > 0, Account.reserved >= workers.PRICE),
)
_UNCOVERED: Final = (*workers.ASKING_NOW, *workers.CONTENT, workers.OF_CLASSES, ~COVERED)
_ANY_UNCOVERED: Final = select(select(Worker.address).where(*_UNCOVERED).exists())
ASKS: Final = select(Worker).where(*_UNCOVERED)
_DRAWN: Final = {
    known: ASKS.where(~NEW if known else NEW).order_by(TURN, func.random()).limit(SAMPLE) for known in (True, False)
}
