"""Brings back times ahead of the latest that their rules allow: a clock was wrong when they were stored."""

from typing import Any, Final

from sqlalchemy import ColumnElement, CursorResult, update
from sqlalchemy.orm import InstrumentedAttribute

from requester.store.work import Work

SLACK_S: Final = 5.0
"""Clocks of the machines that share a database differ by less."""


def bring_back(work: Work, now: float) -> int:
    """Makes every feature bring its times back; returns how many rows had one ahead."""
    changed: int = sum(feature.bound_times(work, now) for feature in work.session.info["features"])
    work.flush()
    return changed


def shift_times(work: Work, now: float, at: InstrumentedAttribute[Any], *ahead: InstrumentedAttribute[Any]) -> int:
    """Moves times that were counted from `at` back with it, where that is after now."""
    moved = {one.key: one - (at - now) for one in ahead}
    statement = update(at.class_).where(at > now + SLACK_S).values({**moved, at.key: now})
    return count_changed_rows(work, statement)


def set_at_most(work: Work, until: InstrumentedAttribute[Any], latest: float, *which: ColumnElement[bool]) -> int:
    later = update(until.class_).where(until > latest + SLACK_S, *which)
    return count_changed_rows(work, later.values({until.key: latest}))


def bound_row_times(row: Any, longest: dict[str, float]) -> int:
    ahead = {name: most for name, most in longest.items() if (getattr(row, name) or 0.0) > most + SLACK_S}
    for name, most in ahead.items():
        setattr(row, name, most)
    return bool(ahead)


def count_changed_rows(work: Work, statement: Any) -> int:
    result: CursorResult[Any] = work.session.execute(  # type: ignore[assignment]
        statement.execution_options(synchronize_session=False)
    )
    return result.rowcount
