"""Moves a row from one state to the next, as its entity's table allows, and only from the state it was read in."""

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from typing import Any, cast

from sqlalchemy import Table, Update, bindparam, update
from sqlalchemy.orm import InstrumentedAttribute, Session, object_session
from sqlalchemy.orm.attributes import instance_state, set_committed_value
from sqlalchemy.orm.exc import StaleDataError

from gradmarket.market.rules import lifecycle
from gradmarket.requester.store.tables import Accusation, Audit, Batch, Calibration, Job, Replica, Round, Task

Held = Task | Replica
Row = Job | Round | Batch | Audit | Accusation | Calibration
MOVED = "moved"


def move(row: Held, new: StrEnum, **values: Any) -> None:
    """Moves a row that the transaction holds to `new`, with `values`; `write_moves` writes it at the next flush.

    Raises IllegalTransition where the entity's table has no such step.
    """
    lifecycle.step(type(new)(row.state), new)
    session = object_session(row)
    if session is not None and row not in session.new:
        session.info.setdefault(MOVED, {}).setdefault(row, row.state)
    for name, value in {"state": new.value, **values}.items():
        setattr(row, name, value)


def write_moves(session: Session, *_flush: object) -> None:
    """Writes every moved row by compare-and-set; rows that changed in the same columns share one statement.

    Raises StaleDataError where another transaction moved a row meanwhile: a clash, which store.retries tries again.
    """
    alike: defaultdict[tuple[type[Held], tuple[str, ...]], list[tuple[Held, str]]] = defaultdict(list)
    for row, was in session.info.pop(MOVED, {}).items():
        alike[type(row), tuple(sorted(instance_state(row).committed_state))].append((row, was))
    for (table, names), rows in alike.items():
        values = [{"was": was, "row": row.id} | {name: getattr(row, name) for name in names} for row, was in rows]
        if session.connection().execute(_compare_and_set(table, names), values).rowcount != len(rows):
            raise StaleDataError(f"somebody else moved one of {len(rows)} {table.__tablename__}")
        _written((row for row, _was in rows), names)


@cache
def _compare_and_set(table: type[Held], names: tuple[str, ...]) -> Update:
    same = table.id == bindparam("row"), table.state == bindparam("was")
    return update(cast(Table, table.__table__)).where(*same).values({name: bindparam(name) for name in names})


def _written(rows: Iterable[Held], names: Iterable[str]) -> None:
    for row in rows:
        for name in names:
            set_committed_value(row, name, getattr(row, name))


def move_now(session: Session, row: Row, new: StrEnum, **values: Any) -> bool:
    """Moves `row` to `new`, with `values`, at once by compare-and-set. False where another transaction moved it first.

    Raises IllegalTransition where the entity's table has no such step.
    """
    lifecycle.step(type(new)(row.state), new)
    table = type(row)
    same = [column == getattr(row, column.key) for column in _key(table)]
    statement = update(cast(Table, table.__table__)).where(*same, table.state == row.state)
    session.flush()
    # through the connection: the same statement through the session costs three times as much
    moved = session.connection().execute(statement, {"state": new.value, **values}).rowcount == 1
    for name, value in {"state": new.value, **values}.items() if moved else ():
        set_committed_value(row, name, value)
    return moved


def _key(table: type[Row]) -> list[InstrumentedAttribute[Any]]:
    return [getattr(table, column.key) for column in table.__mapper__.primary_key if column.key is not None]
