"""Runs alembic: a database that has the newest revision needs none of it (requester.store.schema)."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, func, select

import migrations
from gradmarket.market.errors import Refused
from requester.store.session import is_shared


def build_config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["connection"] = connection
    return config


def run_revisions(engine: Engine, revision: str) -> None:
    """Runs the revisions up to this one; errors as of upgrade_schema."""
    with engine.begin() as connection:
        if is_shared(connection):
            connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended("migrations", 0))))
        config = build_config(connection)
        known = {one.revision for one in ScriptDirectory.from_config(config).walk_revisions()}
        for there in MigrationContext.configure(connection).get_current_heads():
            if there not in known:
                raise Refused(
                    f"the database is of the revision {there}, which this release does not have",
                    "it is from before 0.1.0, of a development version or of a later release: start that one again, or "
                    "take a new database",
                )
        command.upgrade(config, revision)
