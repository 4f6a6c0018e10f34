"""Operators that get no work: those whose work was found wrong, and those that owed answers and left.

Strikes are changed in the transaction that judges the owed answer. The rule is market.rules.strikes.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import bindparam, exists, func, or_, select

from gradmarket.market.rules import strikes
from gradmarket.market.rules.strikes import BARRED_S, NONE, Strikes
from requester.store.among import NOW, is_in_bound_list
from requester.store.tables import Reputation, Strike, Worker
from requester.store.work import RowReader, Work


@dataclass(frozen=True, slots=True)
class StrikeChange:
    """One strike more for an operator in a job, or one less. `withheld`: it withheld an answer it had agreed on."""

    job_id: str
    operator: str
    more: bool
    withheld: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return (self.job_id, self.operator)


def change_strikes(work: Work, changes: Sequence[StrikeChange], now: float, most: int) -> None:
    """Makes the changes, one after the other, under one lock; an operator that has `most` is suspended in the job."""
    # locks the existing rows for this transaction, in the one common order
    named = {"jobs": {change.job_id for change in changes}, "operators": {change.operator for change in changes}}
    rows = {(row.job_id, row.operator): row for row in work.session.scalars(_NAMED, named)}
    for job_id, operator in sorted({change.key for change in changes if change.more} - rows.keys()):
        blank = dict.fromkeys(("weight", "withheld", "at", "until", "withheld_until"), 0.0)
        rows[job_id, operator] = Strike(job_id=job_id, operator=operator, **blank)
        work.add(rows[job_id, operator])
    for one in changes:
        if one.key in rows:
            row = rows[one.key]
            had = _build_strikes(row)
            after = strikes.add_strike(had, now, one.withheld) if one.more else strikes.worked_off(had, now)
            row.weight, row.withheld, row.at = after.weight, after.withheld, after.at
            row.until = strikes.suspended_until(after.weight, after.at, most)
            row.withheld_until = strikes.suspended_until(after.withheld, after.at, most)
    work.flush()


_THEIRS: Final = or_(Strike.operator == Worker.operator, Strike.operator == Worker.address)
_SEVERAL: Final = (
    select(func.count(Strike.job_id.distinct()))
    .where(_THEIRS, Strike.withheld_until > NOW)
    .correlate(Worker)
    .scalar_subquery()
)
SUSPENDED: Final = or_(
    exists().where(_THEIRS, Strike.job_id == bindparam("job"), Strike.until > NOW), _SEVERAL >= strikes.EVERYWHERE
)
"""Condition on a worker's row: its wallet or its operator gets no work of `job` at the time `now`."""


def suspended_among(reader: RowReader, job_id: str, workers: Collection[Worker], now: float) -> set[str]:
    """Returns the addresses of those workers that get no work of the job now."""
    named = {"job": job_id, "now": now, "workers": [worker.address for worker in workers]}
    return set(reader.session.scalars(_SUSPENDED, named)) if workers else set()


_SUSPENDED: Final = select(Worker.address).where(is_in_bound_list(Worker.address, "workers"), SUSPENDED)


BARRED: Final = exists().where(
    Reputation.operator.in_([Worker.operator, Worker.address]), Reputation.failed_at > NOW - BARRED_S
)
"""Condition on a worker's row: its work, or its operator's, was found wrong not long before the time `now`."""


def barred_among(reader: RowReader, operators: Collection[str], since: float) -> set[str]:
    """Returns those of the keys whose work was found wrong after `since`."""
    return set(reader.session.scalars(_FAILED, {"operators": operators, "since": since}))


_FAILED: Final = select(Reputation.operator).where(
    is_in_bound_list(Reputation.operator, "operators"), Reputation.failed_at > bindparam("since")
)


def compute_strike_weight(row: Strike, now: float) -> float:
    return strikes.decay_strikes(_build_strikes(row), now).weight


def list_struck(reader: RowReader, changes: Sequence[StrikeChange], now: float) -> set[tuple[str, str]]:
    """Returns the jobs and operators of the changes that already have a strike with nothing made up for it."""
    jobs, operators = {change.job_id for change in changes}, {change.operator for change in changes}
    rows = reader.session.scalars(_THERE, {"jobs": jobs, "operators": operators}).all() if changes else ()
    return {(row.job_id, row.operator) for row in rows if compute_strike_weight(row, now) >= strikes.WHOLE}


_THERE: Final = select(Strike).where(
    is_in_bound_list(Strike.job_id, "jobs"), is_in_bound_list(Strike.operator, "operators")
)
_NAMED: Final = (
    select(Strike)
    .where(is_in_bound_list(Strike.job_id, "jobs"), is_in_bound_list(Strike.operator, "operators"))
    .order_by(Strike.job_id, Strike.operator)
    .with_for_update(key_share=True)
    .execution_options(populate_existing=True)
)


def _build_strikes(row: Strike) -> Strikes:
    return Strikes(row.weight, row.withheld, row.at) if row.at else NONE
