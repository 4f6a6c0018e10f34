"""The database's schema beside the tables that are imported, and its way back."""

from collections.abc import Iterator

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine, Table, inspect

from requester.store.revisions import build_config
from requester.store.tables import Base


def downgrade_schema(engine: Engine, revision: str = "base") -> None:
    with engine.begin() as connection:
        command.downgrade(build_config(connection), revision)


def list_schema_differences(engine: Engine) -> list[object]:
    """Returns the differences between the tables that are imported and the database."""
    with engine.connect() as connection:
        compared = compare_metadata(MigrationContext.configure(connection), Base.metadata)
        return [*compared, *_list_key_differences(connection)]


def _list_key_differences(connection: Connection) -> Iterator[tuple[str, Table]]:
    """Yields the tables whose primary key differs in the database: alembic does not compare them."""
    found = inspect(connection)
    there = set(found.get_table_names())
    for table in Base.metadata.sorted_tables:
        declared = {column.name for column in table.primary_key}
        if table.name in there and set(found.get_pk_constraint(table.name)["constrained_columns"]) != declared:
            yield "primary_key", table
