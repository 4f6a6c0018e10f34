"""Rows of a database's tables as they are in it, whatever this release declares."""

from typing import Any

from sqlalchemy import Connection, MetaData, Table, insert, select


class ReflectedRows:
    """Columns that a case does not name are empty."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.tables = connection, MetaData()
        self.tables.reflect(connection)

    def add(self, name: str, **given: Any) -> None:
        table: Table = self.tables.tables[name]
        blank = {c.name: _blank(c) for c in table.columns if not c.nullable and c.name != "id"}
        self.connection.execute(insert(table).values(blank | given))

    def rows(self, name: str, *columns: str) -> set[tuple[Any, ...]]:
        table = self.tables.tables[name]
        return set(map(tuple, self.connection.execute(select(*(table.c[column] for column in columns)))))


def _blank(column: Any) -> Any:
    kind = column.type.python_type
    return {str: "", bytes: b"", bool: False, dict: {}}.get(kind, 0)
