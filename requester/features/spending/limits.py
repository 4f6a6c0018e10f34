"""Limits on tokens' spending in a day, and their spending on jobs, as rows. The rule is market.features.spending."""

from collections import Counter
from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, ForeignKey, Index, and_, delete, or_, select, update
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.market.errors import JobRefused
from gradmarket.market.features.spending import DAY_S, Room, Spent, find_room, is_alarm_due
from gradmarket.market.money import TokenUnit
from gradmarket.market.terms import Amount, Units
from requester.api.job_views import format_time
from requester.chain.chain_context import UNDER_WAY, TransactionKind
from requester.context import Context
from requester.feature import features_of
from requester.store.stored_times import SLACK_S, bound_row_times
from requester.store.tables import Base, BigKey, Job, Transaction
from requester.store.work import RowReader, Work


class SpendingLimit(Base):
    """The most that the token of this name may spend in any 24 hours: a decimal string, in the smallest unit."""

    __tablename__ = "spending_limits"

    token: Mapped[str] = mapped_column(primary_key=True)
    a_day: Mapped[str]


class Spending(Base):
    """A token's spending on a job: its budget when it was posted, or a later addition.

    Kept for a day, and for as long as the job waits for its deposit, whose time is then `at`.
    """

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
    """Stores the token's limit; None removes it."""
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
    """Returns the token's spending of the last day, and amounts that wait for their deposit: these count as now's.

    Money that came back of a job that is over does not count, unless a deposit is still on its way to it.
    """
    waits = _await_deposit()
    own = select(Spending, Job, waits).join(Job, Job.id == Spending.job_id).where(Spending.token == token)
    rows = reader.session.execute(own.where(or_(Spending.at > now - DAY_S, waits)).order_by(Spending.id))
    spent, by_job = list[Spent](), Counter[str]()
    for spending, job, waiting in rows:
        amount = int(spending.amount)
        if job.ended_at is not None and not waiting:
            paid = (job.deposited - job.refunded) * int(job.unit)
            amount = max(0, min(amount, paid - by_job[job.id]))
        by_job[job.id] += amount
        spent.append(Spent(now if waiting else spending.at, Amount(amount)))
    return spent


def _await_deposit() -> ColumnElement[bool]:
    """Condition: money may still go on-chain for the job, by its budget or by a transaction whose outcome is open."""
    deposits = (TransactionKind.OPEN, TransactionKind.TOP_UP)
    sent = select(Transaction.job_id).where(Transaction.state.in_(UNDER_WAY), Transaction.kind.in_(deposits))
    unfunded = and_(Job.ended_at.is_(None), Job.deposited < Job.budget)
    return or_(unfunded, Job.id.in_(sent.where(Transaction.job_id.is_not(None))))


def date_deposits(work: Work, job_ids: Iterable[str], at: float) -> None:
    """Moves the spending on these jobs to `at`: their deposits were mined."""
    work.session.execute(update(Spending).where(Spending.job_id.in_(job_ids), Spending.at < at).values(at=at))


def date_top_up(work: Work, job: Job, amount: Units, at: float) -> None:
    """Moves the newest spending on the job to `at`: as much as was deposited now and still waits."""
    left = (amount + max(0, job.budget - job.deposited)) * int(job.unit)
    rows = select(Spending).where(Spending.job_id == job.id).order_by(Spending.id.desc())
    for row in work.session.scalars(rows).all():
        if left <= 0:
            return
        row.at, left = max(row.at, at), left - int(row.amount)


def find_token_room(reader: RowReader, row: SpendingLimit, asked: Amount, now: float) -> Room:
    return find_room(list_spent(reader, row.token, now), Amount(int(row.a_day)), asked, now)


def spend(context: Context, work: Work, job: Job, token: str, amount: Amount) -> None:
    """Records the token's spending on the job. Raises JobRefused where its budget of the day is too small.

    Queues the alarm of the token's webhooks once it has spent four fifths.
    """
    now = context.clock()
    work.one_at_a_time(f"spending of {token}")
    row = work.get(SpendingLimit, token)
    if row is not None:
        room = find_token_room(work, row, amount, now)
        if amount > room.left:
            unit = TokenUnit.of(context.chain_facts)
            left = f"{unit.text(room.left)} left of its {unit.text(row.a_day)} a day"
            if room.fits_at is None:
                until = "this amount is never free: lower the budget"
            elif room.fits_at < now + DAY_S:
                until = f"this amount is free again at {format_time(room.fits_at)}"
            else:
                until = (
                    "this amount is free again a day after the deposits of jobs that wait for them; cancel one, or wait"
                )
            raise JobRefused("budget", f"this takes {unit.text(amount)}, and the token {row.token} has {left}; {until}")
        if is_alarm_due(room.spent, Amount(room.spent + amount), Amount(int(row.a_day))):
            fields = {"token": token, "spent": str(room.spent + amount), "a_day": row.a_day}
            for feature in features_of(work):
                feature.queue_token_event(work, job, token, "spending.alarm", fields, now)
    over = select(Job.id).where(~_await_deposit())
    old = delete(Spending).where(Spending.token == token, Spending.at <= now - DAY_S, Spending.job_id.in_(over))
    work.session.execute(old.execution_options(synchronize_session=False))
    work.add(Spending(token=token, job_id=job.id, amount=str(amount), at=now))


def bound_times(work: Work, now: float) -> int:
    """Brings back spending dated ahead of the clock, which would count for longer than a day; returns the number."""
    rows = work.session.scalars(select(Spending).where(Spending.at > now + SLACK_S)).all()
    return sum(bound_row_times(row, {"at": now}) for row in rows)
