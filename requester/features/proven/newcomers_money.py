"""The money that a job may reserve for its newcomers, and the part without a deposit (features.proven.seat_rules)."""

from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import Final

from sqlalchemy import BigInteger, bindparam, select
from sqlalchemy.orm import aliased

from gradmarket.market.features.proven import seat_rules
from gradmarket.market.rules import newcomers
from gradmarket.market.rules.assignment import Party
from gradmarket.market.rules.replication import proven
from gradmarket.market.terms import Units
from requester.features.proven import proven_records
from requester.store import jobs, workers
from requester.store import newcomers as store
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
    stands_in_s: float
    """Seconds until the round stands so that one more is left where none is."""
    missing: int
    """Units of the deposit that are missing for one without a deposit to get one more at once."""
    proven: int
    """Prices that are left for proven workers, beside all of these."""


def load_newcomers_money(reader: RowReader, job: Job, now: float) -> NewcomersMoney:
    """Returns the money of the job's newcomers: an answer elsewhere makes nobody proven here, and so none a known one.

    Newcomers hold at most market.rules.newcomers.compute_allowance, and proven workers as much, beside what those have
    that earned something in the job; each may get one more where the round stands (count_reservable).
    """
    price, held, unbacked, proven_units, last = jobs.compute_reserve_per_gradient(job), Counter[str](), 0, 0, 0.0
    asked = workers.asked_of(job, now) | proven_records.bind_proof(job, now)
    for network, payout, units, reserved_at, has_deposit, is_proven in reader.session.execute(
        _HELD, asked | {"deposit": proven.PROOF * job.price}
    ):
        last = max(last, reserved_at or 0.0)
        if is_proven:
            proven_units += units
        else:
            held[network or payout] += units // price
            unbacked += 0 if has_deposit else units // price
    allowance = newcomers.compute_allowance(Units(job.deposited), jobs.round_cost(reader, job))
    spec, row = jobs.load_spec(job), jobs.latest_round(reader, job.id)
    lease_s, stood_s = spec.deadlines.lease_s, store.compute_stood_s(reader, job, last, now)
    left = newcomers.count_reservable(allowance // price - held.total(), stood_s, lease_s)
    for_proven = newcomers.count_reservable((allowance - proven_units) // price, stood_s, lease_s)
    # where a round stands still, one more of those kept is theirs each time; where nobody can place a deposit, all at
    # once: they would be kept for nobody, as in the last round
    watched_s = newcomers.compute_watched_s(lease_s)
    open_s = 0.0 if row is None else max(0.0, now - row.opened_at)
    number, still = 0 if row is None else row.number, int(open_s // watched_s)
    if still and spec.stake is None:
        number = spec.rounds

    def count_open(prices: int) -> int:
        return seat_rules.count_open_prices(prices, 0, number, spec.rounds, still)

    total = held.total() + left
    without, stands_in_s = max(0, count_open(total) - unbacked), max(0.0, watched_s - stood_s)
    after = count_open(total if left else total + 1)
    closed = 0 if spec.stake is None else max(0, unbacked - after)
    next_s = (still + 1 + closed) * watched_s - open_s
    if not left:
        next_s = stands_in_s if after > unbacked else max(stands_in_s, next_s)
    enough = next(prices for prices in count(total + 1) if count_open(prices) > unbacked)
    missing = newcomers.SHARE * enough * price - job.deposited
    return NewcomersMoney(held, unbacked, left, min(left, without), next_s, stands_in_s, missing, for_proven)


def has_holder_beside(reader: RowReader, job: Job, party: Party) -> bool:
    """Returns whether another worker of its operator has money reserved in the job and has earned nothing there."""
    about = {"job": job.id, "price": job.price, "operator": party.operator, "worker": party.worker}
    return reader.session.scalar(_HELD_BY, about) is not None


_OTHER: Final = aliased(Worker)
HOLDERS: Final = (
    select(_OTHER.operator)
    .join(Account, Account.worker == _OTHER.address)
    .where(Account.job_id == bindparam("job"), Account.earned == 0, Account.reserved >= workers.PRICE)
)
"""The operators of the workers that have money reserved in the job and have earned nothing there."""
_HELD_BY: Final = HOLDERS.where(_OTHER.operator == bindparam("operator"), _OTHER.address != bindparam("worker")).limit(
    1
)
_HELD: Final = (
    select(
        *(Worker.network, Worker.payout, Account.reserved, Account.reserved_at),
        Account.at_risk >= bindparam("deposit", type_=BigInteger),
        proven_records.PROVEN,
    )
    .join(Account, Account.worker == Worker.address)
    .where(Account.job_id == bindparam("job"), Account.earned == 0, Account.reserved > 0)
)
