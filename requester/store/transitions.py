"""Moves a row from one state to the next, as its entity's table allows, and only from the state it was read in."""

from collections import defaultdict
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any, cast

from sqlalchemy import JSON, Connection, Table, Update, bindparam, column, func, update
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import InstrumentedAttribute
from sqlalchemy.orm.attributes import instance_state, set_committed_value
from sqlalchemy.orm.exc import StaleDataError

from gradmarket.market.rules import lifecycle
from requester.store.tables import Base, Replica, Task

Held = Task | Replica


class Moves:
    """Rows that a transaction moved and has not written yet, each with the state in which it was read."""

    def __init__(self) -> None:
        self._was: dict[Held, StrEnum] = {}

    def add(self, row: Held, new: StrEnum, values: Mapping[str, Any]) -> None:
        """Moves the row in memory; raises IllegalTransition where the entity's table has no such step."""
        lifecycle.check_transition(row.state, new)
        if instance_state(row).key is not None:  # others are inserted in the state that they have then
            self._was.setdefault(row, row.state)
        for name, value in {"state": new, **values}.items():
            setattr(row, name, value)

    def write(self, connection: Connection) -> None:
        """Writes every moved row by compare-and-set; rows that changed in the same columns share one statement.

        Raises StaleDataError where another transaction moved a row meanwhile: a clash, which store.locks tries again.
        """
        alike: defaultdict[tuple[type[Held], tuple[str, ...]], list[tuple[Held, StrEnum]]] = defaultdict(list)
        for row, was in self._was.items():
            alike[type(row), tuple(sorted(instance_state(row).committed_state))].append((row, was))
        self._was.clear()
        for (table, names), rows in alike.items():
            values = [{"was": was, "row": row.id} | {name: getattr(row, name) for name in names} for row, was in rows]
            together = _all_at_once(table, names) if connection.dialect.name == "postgresql" else None
            if together is None:
                written = connection.execute(_compare_and_set(table, names), values).rowcount
            else:
                arrays = {f"all_{name}": [row[name] for row in values] for name in values[0]}
                written = connection.execute(together, arrays).rowcount
            if written != len(rows):
                raise StaleDataError(f"somebody else moved one of {len(rows)} {table.__tablename__}")
            for row, _was in rows:
                for name in names:
                    set_committed_value(row, name, getattr(row, name))

    def __bool__(self) -> bool:
        return bool(self._was)


@cache
def _all_at_once(table: type[Held], names: tuple[str, ...]) -> Update | None:
    """Builds an update with an array for each column; None where a column holds JSON, unfit for bound arrays."""
    own = cast(Table, table.__table__)
    types = {"row": own.c.id.type, "was": own.c.state.type, **{name: own.c[name].type for name in names}}
    if any(isinstance(getattr(kind, "impl_instance", kind), JSON) for kind in types.values()):
        return None
    arrays = (bindparam(f"all_{name}", type_=ARRAY(kind)) for name, kind in types.items())
    columns = (column(f"new_{name}", kind) for name, kind in types.items())
    new = func.unnest(*arrays).table_valued(*columns, name="new").render_derived()
    same = own.c.id == new.c.new_row, own.c.state == new.c.new_was
    return update(own).where(*same).values({name: new.c[f"new_{name}"] for name in names})


@cache
def _compare_and_set(table: type[Held], names: tuple[str, ...]) -> Update:
    same = table.id == bindparam("row"), table.state == bindparam("was")
    return update(cast(Table, table.__table__)).where(*same).values({name: bindparam(name) for name in names})


def move_now(connection: Connection, row: Base, new: StrEnum, values: Mapping[str, Any]) -> bool:
    """Writes one move by compare-and-set, after a flush; False where another transaction moved the row first.

    Raises IllegalTransition where the entity's table has no such step.
    """
    table, before = type(row), cast(Any, row).state
    lifecycle.check_transition(before, new)
    same = {f"own_{column.key}": getattr(row, column.key) for column in _list_key_columns(table)} | {"was": before}
    # through the connection: the same statement through the session costs three times as much
    statement = _build_update(table, ("state", *sorted(values)))
    moved = connection.execute(statement, {**same, "state": new, **values}).rowcount == 1
    for name, value in {"state": new, **values}.items() if moved else ():
        set_committed_value(row, name, value)
    return moved


@cache
def _build_update(table: type[Base], names: tuple[str, ...]) -> Update:
    same = [column == bindparam(f"own_{column.key}") for column in _list_key_columns(table)]
    moved = update(cast(Table, table.__table__)).where(*same, cast(Any, table).state == bindparam("was"))
    return moved.values({name: bindparam(name) for name in names})


def _list_key_columns(table: type[Base]) -> list[InstrumentedAttribute[Any]]:
    return [getattr(table, column.key) for column in table.__mapper__.primary_key if column.key is not None]
