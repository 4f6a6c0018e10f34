"""The money that a job may reserve for its newcomers, and the part that idle ones hold (features.proven.seat_rules)."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from sqlalchemy import BigInteger, and_, bindparam, case, exists, func, not_, or_, select
from sqlalchemy.orm import aliased

from gradmarket.market.features.late import expected_s
from gradmarket.market.features.proven import seat_rules
from gradmarket.market.rules import assignment
from gradmarket.market.rules.assignment import Mixable
from gradmarket.market.rules.lifecycle import IN_FLIGHT
from gradmarket.market.rules.replication import proven
from gradmarket.market.terms import ReplicaState
from requester.features.proven import seats
from requester.store import jobs, newcomers, workers
from requester.store.tables import Account, Job, Replica, Worker
from requester.store.work import RowReader


@dataclass(frozen=True, slots=True)
class NewcomersMoney:
    """Prices of a gradient that newcomers hold, by network or else payout, and that are left."""

    held: Counter[str]
    idle: int
    """Of `held`, by those without a deposit that answer nothing."""
    left: int
    without: int
    """Of `left`, the most that those without a deposit may get."""


def load_newcomers_money(reader: RowReader, job: Job, mixable: Mixable, spent: int, now: float) -> NewcomersMoney:
    """Returns the money of the job's newcomers, after `spent` prices for others of what is left."""
    price, held, idle = jobs.compute_reserve_per_gradient(job), Counter[str](), 0
    of_class = seats.list_paces(reader, job, job.determinism_class or "")
    usual = expected_s((), of_class, jobs.load_spec(job).deadlines.lease_s)
    beside = assignment.list_comparable_classes(job.determinism_class or "", mixable)
    about = {"deposit": proven.PROOF * job.price, "due": now - usual}
    for network, payout, units, unused in reader.session.execute(_HELD, workers.asked_of(job, now, beside) | about):
        held[network or payout] += int(units) // price
        idle += int(unused) // price
    left = max(0, newcomers.count_by_money(reader, job, known=False) - spent)
    number, rounds = _find_round_by_rule(reader, job, now), jobs.load_spec(job).rounds
    without = seat_rules.count_open_prices(held.total() + left, idle, number, rounds)
    return NewcomersMoney(held, idle, left, min(left, without))


def _find_round_by_rule(reader: RowReader, job: Job, now: float) -> int:
    """Returns the newest round; the last where nobody can place a deposit and rounds stand still for want of newcomers.

    Half of the money would be kept for nobody then, for ever.
    """
    spec, row = jobs.load_spec(job), jobs.latest_round(reader, job.id)
    if row is None:
        return 0
    stands_still = row.opened_at < now - seat_rules.compute_watched_s(spec.deadlines.lease_s)
    return spec.rounds if spec.stake is None and stands_still else row.number


_OF_JOB: Final = and_(Replica.worker == Worker.address, Replica.job_id == bindparam("job"))
_WORKS: Final = exists().where(
    _OF_JOB,
    Replica.state.in_(IN_FLIGHT),
    or_(Replica.state != ReplicaState.LEASED, Replica.leased_at >= bindparam("due")),
)
"""Condition: it has a place that it may still answer in time."""
_WAITS: Final = and_(*workers.ASKING_NOW, *workers.CONTENT, workers.OF_CLASSES, ~exists().where(_OF_JOB))
"""Condition: it asks for a place, and had none."""
_HOLDS: Final = aliased(Account)
_IDLE: Final = and_(_HOLDS.at_risk < bindparam("deposit", type_=BigInteger), not_(_WORKS), not_(_WAITS))
_HELD: Final = (
    select(
        Worker.network,
        Worker.payout,
        func.sum(_HOLDS.reserved),
        func.sum(case((_IDLE, _HOLDS.reserved), else_=0)),
    )
    .join(_HOLDS, _HOLDS.worker == Worker.address)
    .where(_HOLDS.job_id == bindparam("job"), _HOLDS.earned == 0, _HOLDS.reserved > 0, newcomers.NEW)
    .group_by(Worker.network, Worker.payout)
)
