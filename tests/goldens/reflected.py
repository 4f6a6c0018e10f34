"""The actual schema of a database, table by table: that of the migrations, not that of the models."""

from typing import Any

from sqlalchemy import Engine, inspect


def reflect_schema(engine: Engine) -> dict[str, Any]:
    """Returns each table's columns, keys, indexes and constraints, without their order."""
    found = inspect(engine)
    return {table: _reflect_table(found, table) for table in sorted(found.get_table_names())}


def _reflect_table(found: Any, table: str) -> dict[str, Any]:
    columns = {column["name"]: _column(column) for column in found.get_columns(table)}
    return {
        "columns": columns,
        "primary key": found.get_pk_constraint(table)["constrained_columns"],
        "foreign keys": sorted(
            f"{', '.join(key['constrained_columns'])} -> {key['referred_table']} {', '.join(key['referred_columns'])}"
            for key in found.get_foreign_keys(table)
        ),
        "indexes": {index["name"]: _index(index) for index in found.get_indexes(table)},
        "unique": sorted(", ".join(each["column_names"]) for each in found.get_unique_constraints(table)),
        "checks": sorted(each["sqltext"] for each in found.get_check_constraints(table)),
    }


def _column(column: dict[str, Any]) -> str:
    default = "" if column["default"] is None else f" default {column['default']}"
    return f"{column['type']}{'' if column['nullable'] else ' not null'}{default}"


def _index(index: dict[str, Any]) -> str:
    where = [str(value) for name, value in sorted(index.get("dialect_options", {}).items()) if name.endswith("_where")]
    columns = ", ".join(str(name) for name in index["column_names"])
    return f"{'unique ' if index['unique'] else ''}{columns}{' where ' + where[0] if where else ''}"
