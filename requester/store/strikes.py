"""Strikes of operators, changed in the transaction that judges what they owed. The rule is market.rules.strikes."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from sqlalchemy import ColumnElement, bindparam, exists, func, or_, select

from gradmarket.market.rules import strikes
from gradmarket.market.rules.strikes import NONE, Strikes
from gradmarket.requester.store.among import among
from gradmarket.requester.store.tables import Strike, Worker
from gradmarket.requester.store.work import RowReader, Work


def strike(work: Work, job_id: str, operators: Iterable[str], now: float, most: int, withheld: bool = False) -> None:
    """Adds a strike to each of the operators; one that has `most` of them is suspended in the job."""
    named = sorted(operators)
    for _job, operator in sorted({(job_id, operator) for operator in named} - held(work, [job_id], named).keys()):
        work.add(_blank(job_id, operator))
    work.flush()
    for operator in named:
        _change(work.get_one(Strike, (job_id, operator)), lambda had: strikes.struck(had, now, withheld), most)


def work_off(row: Strike, now: float, most: int) -> None:
    """Removes a strike."""
    _change(row, lambda had: strikes.worked_off(had, now), most)


def suspended(job_id: str, now: float) -> ColumnElement[bool]:
    """Condition on a worker's row: its wallet or its operator gets no work of the job now."""
    theirs = or_(Strike.operator == Worker.operator, Strike.operator == Worker.address)
    own = (theirs, Strike.job_id == job_id, Strike.until > now)
    several = (
        select(func.count(Strike.job_id.distinct()))
        .where(theirs, Strike.withheld_until > now)
        .correlate(Worker)
        .scalar_subquery()
    )
    return or_(exists().where(*own), several >= strikes.EVERYWHERE)


def suspended_among(reader: RowReader, job_id: str, workers: Collection[Worker], now: float) -> set[str]:
    """Returns the addresses of those workers that get no work of the job now."""
    named = select(Worker.address).where(among(Worker.address, "workers"), suspended(job_id, now))
    return set(reader.session.scalars(named, {"workers": [worker.address for worker in workers]})) if workers else set()


def of(reader: RowReader, operator: str) -> Sequence[Strike]:
    """All of one operator, by job."""
    return reader.session.scalars(_OF_OPERATOR, {"operator": operator}).all()


_OF_OPERATOR: Final = select(Strike).where(Strike.operator == bindparam("operator")).order_by(Strike.job_id)


def weight(row: Strike, now: float) -> float:
    return strikes.decayed(_kept(row), now).weight


def held(work: Work, jobs: Iterable[str], operators: Iterable[str]) -> dict[tuple[str, str], Strike]:
    """Returns the rows of these operators in these jobs, by both, locked for this transaction in one common order."""
    rows = work.session.scalars(_OF_JOBS, {"jobs": list(jobs), "operators": list(operators)})
    return {(row.job_id, row.operator): row for row in rows}


_OF_JOBS: Final = (
    select(Strike)
    .where(among(Strike.job_id, "jobs"), among(Strike.operator, "operators"))
    .order_by(Strike.job_id, Strike.operator)
    .with_for_update(key_share=True)
    .execution_options(populate_existing=True)
)


def _blank(job_id: str, operator: str) -> Strike:
    none = {"weight": 0.0, "withheld": 0.0, "at": 0.0, "until": 0.0, "withheld_until": 0.0}
    return Strike(job_id=job_id, operator=operator, **none)


def _kept(row: Strike) -> Strikes:
    return Strikes(row.weight, row.withheld, row.at) if row.at else NONE


def _change(row: Strike, rule: Callable[[Strikes], Strikes], most: int) -> None:
    after = rule(_kept(row))
    row.weight, row.withheld, row.at = after.weight, after.withheld, after.at
    row.until = strikes.suspended_until(after.weight, after.at, most)
    row.withheld_until = strikes.suspended_until(after.withheld, after.at, most)
