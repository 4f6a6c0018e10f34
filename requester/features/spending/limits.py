"""What tokens may spend in a day and what they laid out for jobs, as rows. The rule is market.features.spending."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import ForeignKey, Index, delete, select
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.market.errors import JobRefused
from gradmarket.market.features.spending.daily_budget import DAY_S, Room, Spent, find_room, is_alarm_due
from gradmarket.market.money import TokenUnit
from gradmarket.market.terms import Amount
from requester.api.views.formats import format_time
from requester.context import Context
from requester.store.event_log import record_event
from requester.store.stored_times import SLACK_S, bound_row_times
from requester.store.tables import Base, BigKey, Job
from requester.store.work import RowReader, Work

ALARM: Final = "spending_alarm"


class SpendingLimit(Base):
    """What the token of this name may spend in any 24 hours, in the token's smallest unit, as a decimal string."""

    __tablename__ = "spending_limits"

    token: Mapped[str] = mapped_column(primary_key=True)
    a_day: Mapped[str]


class Spending(Base):
    """What a token laid out for a job: the budget when it was posted, and what was added later. Kept for a day."""

    __tablename__ = "spendings"

    id: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=True)
    token: Mapped[str]
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    amount: Mapped[str]
    at: Mapped[float]

    __table_args__ = (Index("spendings_of_token", "token", "at"),)


def list_limits(reader: RowReader) -> Sequence[SpendingLimit]:
    return reader.session.scalars(select(SpendingLimit).order_by(SpendingLimit.token)).all()


def set_limit(work: Work, token: str, a_day: Amount | None) -> None:
    """None takes the limit away."""
    work.one_at_a_time(f"spending of {token}")
    row = work.get(SpendingLimit, token)
    if a_day is None and row is not None:
        work.session.delete(row)
    elif a_day is not None and row is None:
        work.add(SpendingLimit(token=token, a_day=str(a_day)))
    elif a_day is not None and row is not None:
        row.a_day = str(a_day)
    work.flush()


def list_spent(reader: RowReader, token: str, now: float) -> list[Spent]:
    """Returns what the token laid out in the last day. Of a job that is over, what came back does not count."""
    own = select(Spending, Job).join(Job, Job.id == Spending.job_id)
    rows = reader.session.execute(own.where(Spending.token == token, Spending.at > now - DAY_S).order_by(Spending.id))
    by_job: defaultdict[str, list[tuple[Spending, Job]]] = defaultdict(list)
    for spending, job in rows:
        by_job[job.id].append((spending, job))
    return [one for of_job in by_job.values() for one in _list_of_job(of_job)]


def _list_of_job(rows: Iterable[tuple[Spending, Job]]) -> Iterable[Spent]:
    gone = 0
    for spending, job in rows:
        amount = int(spending.amount)
        if job.ended_at is not None:
            paid = (job.deposited - job.refunded) * int(job.unit)
            amount = max(0, min(amount, paid - gone))
        gone += amount
        yield Spent(spending.at, Amount(amount))


def find_token_room(reader: RowReader, row: SpendingLimit, asked: Amount, now: float) -> Room:
    return find_room(list_spent(reader, row.token, now), Amount(int(row.a_day)), asked, now)


def spend(context: Context, work: Work, job: Job, token: str, amount: Amount) -> None:
    """Writes down what the token lays out for the job. Raises JobRefused where its budget of the day has not so much.

    An event of the job tells once it has spent four fifths.
    """
    now = context.clock()
    work.one_at_a_time(f"spending of {token}")
    row = work.get(SpendingLimit, token)
    if row is not None:
        room = find_token_room(work, row, amount, now)
        if amount > room.left:
            raise JobRefused("budget", _describe_refusal(TokenUnit.of(context.chain_facts), row, room, amount))
        if is_alarm_due(room.spent, Amount(room.spent + amount), Amount(int(row.a_day))):
            spent = str(room.spent + amount)
            record_event(work, job.id, ALARM, now, token=token, spent=spent, a_day=row.a_day)
    work.session.execute(delete(Spending).where(Spending.token == token, Spending.at <= now - DAY_S))
    work.add(Spending(token=token, job_id=job.id, amount=str(amount), at=now))


def bound_times(work: Work, now: float) -> int:
    """Brings back what was spent ahead of the clock, which would count for longer than a day; returns how many."""
    rows = work.session.scalars(select(Spending).where(Spending.at > now + SLACK_S)).all()
    return sum(bound_row_times(row, {"at": now}) for row in rows)


def _describe_refusal(unit: TokenUnit, row: SpendingLimit, room: Room, asked: Amount) -> str:
    when = format_time(room.fits_at)
    left = f"{unit.text(room.left)} left of its {unit.text(row.a_day)} a day"
    until = f"so much is free again at {when}" if when else "so much is never free: lower the budget"
    return f"this takes {unit.text(asked)}, and the token {row.token} has {left}; {until}"
