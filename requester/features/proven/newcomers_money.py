"""The money that a job may reserve for its newcomers, and the part without a deposit (features.proven.seat_rules)."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from sqlalchemy import BigInteger, bindparam, case, func, select

from gradmarket.market.features.proven import seat_rules
from gradmarket.market.rules.replication import proven
from requester.store import jobs, newcomers
from requester.store.tables import Account, Job, Worker
from requester.store.work import RowReader


@dataclass(frozen=True, slots=True)
class NewcomersMoney:
    """Prices of a gradient that newcomers hold, by network or else payout, and that are left."""

    held: Counter[str]
    unbacked: int
    """Of `held`, by those without a deposit."""
    left: int
    without: int
    """Of `left`, the most that those without a deposit may get."""
    next_s: float
    """Seconds until they may get one more, should the round not end."""


def load_newcomers_money(reader: RowReader, job: Job, spent: int, now: float) -> NewcomersMoney:
    """Returns the money of the job's newcomers, after `spent` prices for others of what is left."""
    price, held, unbacked = jobs.compute_reserve_per_gradient(job), Counter[str](), 0
    about = {"job": job.id, "deposit": proven.PROOF * job.price}
    for network, payout, units, without in reader.session.execute(_HELD, about):
        held[network or payout] += int(units) // price
        unbacked += int(without) // price
    left = max(0, newcomers.count_by_money(reader, job, known=False) - spent)
    # where a round stands still, one more of those kept is theirs each time; where nobody can place a deposit, all at
    # once: they would be kept for nobody, as in the last round
    spec, row = jobs.load_spec(job), jobs.latest_round(reader, job.id)
    watched_s = seat_rules.compute_watched_s(spec.deadlines.lease_s)
    open_s = 0.0 if row is None else max(0.0, now - row.opened_at)
    number, still = 0 if row is None else row.number, int(open_s // watched_s)
    if still and spec.stake is None:
        number = spec.rounds
    without = seat_rules.count_open_prices(held.total() + left, unbacked, number, spec.rounds, still)
    return NewcomersMoney(held, unbacked, left, min(left, without), (still + 1) * watched_s - open_s)


_HELD: Final = (
    select(
        Worker.network,
        Worker.payout,
        func.sum(Account.reserved),
        func.sum(case((Account.at_risk < bindparam("deposit", type_=BigInteger), Account.reserved), else_=0)),
    )
    .join(Account, Account.worker == Worker.address)
    .where(Account.job_id == bindparam("job"), Account.earned == 0, Account.reserved > 0, newcomers.NEW)
    .group_by(Worker.network, Worker.payout)
)
