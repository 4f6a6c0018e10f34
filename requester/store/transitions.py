"""A claim is a compare-and-set: one statement moves the row, or tells that somebody else did."""

from enum import StrEnum
from typing import Any, cast

from sqlalchemy import Table, update
from sqlalchemy.orm import InstrumentedAttribute, Session
from sqlalchemy.orm.attributes import set_committed_value

from gradmarket.market.rules import lifecycle
from gradmarket.requester.store.tables import Accusation, Audit, Batch, Calibration, Job, Replica, Round, Task

Row = Job | Round | Task | Replica | Batch | Audit | Accusation | Calibration


def move(session: Session, row: Row, new: StrEnum, **values: Any) -> bool:
    """Moves `row` from the state it was read in to `new`, with `values`; False where it is no longer there.

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
