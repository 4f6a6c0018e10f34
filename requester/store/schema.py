"""Brings a database to the newest revision of `migrations/`, and back."""

from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine, func, select

from gradmarket import migrations
from gradmarket.requester.store.session import is_shared
from gradmarket.requester.store.tables import Base


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["connection"] = connection
    return config


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Safe to be called by several processes at once."""
    with engine.begin() as connection:
        if is_shared(connection):
            connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended("migrations", 0))))
        command.upgrade(_config(connection), revision)


def downgrade(engine: Engine, revision: str = "base") -> None:
    with engine.begin() as connection:
        command.downgrade(_config(connection), revision)


def write_revision(engine: Engine, message: str) -> None:
    """For developers: a new revision from what the tables differ by."""
    with engine.begin() as connection:
        command.revision(_config(connection), message, autogenerate=True)


def differences(engine: Engine) -> list[object]:
    """What the tables say and the database does not, or the other way round."""
    with engine.connect() as connection:
        found: list[object] = compare_metadata(MigrationContext.configure(connection), Base.metadata)
        return found
