"""A row goes from one state to the next as its entity's table allows, and only from the state that it was read in."""

from enum import StrEnum
from typing import Any, cast

from sqlalchemy import Table, update
from sqlalchemy.orm import InstrumentedAttribute, Session
from sqlalchemy.orm.attributes import set_committed_value

from gradmarket.market.rules import lifecycle
from gradmarket.requester.store.tables import Accusation, Audit, Batch, Calibration, Job, Replica, Round, Task

Row = Job | Round | Batch | Audit | Accusation | Calibration


def move(row: Task | Replica, new: StrEnum, **values: Any) -> None:
    """Moves what the transaction holds to `new`, with `values`; they are written together, at its next flush.

    The flush compares states, and raises StaleDataError where somebody else moved the row meanwhile: a clash, which
    store.patience tries again. Raises IllegalTransition where the entity's table has no such step.
    """
    lifecycle.step(type(new)(row.state), new)
    for name, value in {"state": new.value, **values}.items():
        setattr(row, name, value)


def move_now(session: Session, row: Row, new: StrEnum, **values: Any) -> bool:
    """Moves `row` to `new`, with `values`, at once: a compare-and-set. False where somebody else was there first.

    Raises IllegalTransition where the entity's table has no such step.
    """
    lifecycle.step(type(new)(row.state), new)
    table = type(row)
    same = [column == getattr(row, column.key) for column in _key(table)]
    statement = update(cast(Table, table.__table__)).where(*same, table.state == row.state)
    session.flush()
    # by the connection: the same statement by the session costs three times as much
    moved = session.connection().execute(statement, {"state": new.value, **values}).rowcount == 1
    for name, value in {"state": new.value, **values}.items() if moved else ():
        set_committed_value(row, name, value)
    return moved


def _key(table: type[Row]) -> list[InstrumentedAttribute[Any]]:
    return [getattr(table, column.key) for column in table.__mapper__.primary_key if column.key is not None]
