"""Rows that strangers leave behind and nobody needs: ended sessions, workers that only asked, answers kept for repeats.

Anybody may sign in, so each such row has an end. Records of a worker's answers, earnings and bars stay.
"""

from collections.abc import Sequence
from typing import Any, Final, cast

from sqlalchemy import CursorResult, String, and_, delete, exists, false, func, or_, select, update
from sqlalchemy import cast as as_type

from requester.context import Context
from requester.store.locks import hold_named_lock
from requester.store.stored_times import set_at_most
from requester.store.tables import (
    Account,
    ApiToken,
    Base,
    ConsentRow,
    Holder,
    Idempotency,
    LeaderLease,
    Replica,
    Reputation,
    Worker,
)
from requester.store.work import RowReader, Work

NAME: Final = "leftovers"
EVERY_S: Final = 600.0
QUIET_S: Final = 3600.0
"""Seconds after which a worker's last request is forgotten: its next poll repeats it."""
REPEATED_S: Final = 7 * 86_400.0
"""Seconds for which a POST may be repeated with its Idempotency-Key."""
WITHDRAWN_S: Final = 30 * 86_400.0
MOST_WITHDRAWN: Final = 100_000
"""Seconds for which withdrawals of consents for unknown workers are kept, and the most that are kept at once."""
AT_ONCE: Final = 500
"""Rows of a kind that one transaction takes."""


def is_sweep_due(reader: RowReader, now: float) -> bool:
    """Returns whether EVERY_S have passed since the last sweep, or it left rows behind."""
    row = reader.get(LeaderLease, NAME)
    return row is None or row.until < now


def delete_leftovers(work: Work, now: float, session_s: float) -> None:
    """Deletes at most AT_ONCE rows of each kind; the next sweep is due at once where more are left."""
    ended = select(ApiToken.hash).where(ApiToken.until < now)
    repeated = select(Idempotency.subject, Idempotency.key).where(Idempotency.at < now - REPEATED_S)
    withdrawn = select(ConsentRow.worker, ConsentRow.payout).where(ConsentRow.at < now - WITHDRAWN_S, ~_KNOWN)
    strangers = select(Worker.address).where(Worker.seen_at < now - max(session_s, QUIET_S), ~_HISTORY)
    counts = list[int]()
    keyed: Sequence[tuple[type[Base], tuple[Any, ...], Any]] = (
        (ApiToken, (ApiToken.hash,), ended),
        (Idempotency, (Idempotency.subject, Idempotency.key), repeated),
        (ConsentRow, (ConsentRow.worker, ConsentRow.payout), withdrawn),
        (Worker, (Worker.address,), strangers),
    )
    for table, keys, found in keyed:
        rows = work.session.execute(found.limit(AT_ONCE)).all()
        named = (and_(*(key == value for key, value in zip(keys, row, strict=True))) for row in rows)
        counts.append(_count_changed_rows(work, delete(table).where(or_(false(), *named))))
    quiet = select(Worker.address).where(Worker.seen_at < now - QUIET_S, _SAYS_MUCH).limit(AT_ONCE)
    emptied = update(Worker).where(Worker.address.in_(work.session.scalars(quiet).all()))
    counts.append(_count_changed_rows(work, emptied.values(jobs=[], least_prices={})))
    again = now if max(counts) >= AT_ONCE else now + EVERY_S
    work.session.merge(LeaderLease(name=NAME, holder="", until=again))


def bound_times(work: Work, now: float) -> int:
    return set_at_most(work, LeaderLease.until, now + EVERY_S, LeaderLease.name == NAME)


def count_withdrawals(reader: RowReader, now: float) -> int:
    """Counts withdrawals of the last WITHDRAWN_S for workers that are not known, up to MOST_WITHDRAWN."""
    young = ConsentRow.at >= now - WITHDRAWN_S
    unknown = select(ConsentRow.worker).where(young, ConsentRow.withdrawn > 0, ~_KNOWN)
    some = unknown.limit(MOST_WITHDRAWN).subquery()
    return reader.session.scalar(select(func.count()).select_from(some)) or 0


_KNOWN: Final = exists().where(Worker.address == ConsentRow.worker)
_HISTORY: Final = or_(
    *(exists().where(column == Worker.address) for column in (Replica.worker, Account.worker, Holder.worker)),
    exists().where(Reputation.operator == Worker.address),
    exists().where(ConsentRow.worker == Worker.address),
    Worker.accepted_at.is_not(None),
)
"""Conditions: it is in a list, held a lease, had money set aside, was judged, or a key consented to be its operator.

The last, since a consent has no end: were its worker forgotten, so were its withdrawal, and it would be valid again.
"""
_SAYS_MUCH: Final = or_(as_type(Worker.least_prices, String) != "{}", as_type(Worker.jobs, String) != "[]")


def _count_changed_rows(work: Work, statement: Any) -> int:
    return cast(
        CursorResult[Any], work.session.execute(statement.execution_options(synchronize_session=False))
    ).rowcount


# The stage.

TOPIC = "sweep"


def ready(reader: RowReader, now: float) -> Sequence[str]:
    return (NAME,) if is_sweep_due(reader, now) else ()


def run(context: Context, row_id: str) -> float | None:
    with hold_named_lock(context.sessions, f"{TOPIC} {row_id}") as mine:
        if mine:
            with context.begin() as work:
                delete_leftovers(work, context.clock(), context.settings.session_s)
    return None if mine else context.settings.sweep_s
