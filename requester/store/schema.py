"""Upgrades a database to the newest revision of `migrations/`, and downgrades it."""

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, func, inspect, select, text

import migrations
from gradmarket.market.errors import Refused
from gradmarket.market.release import PROTOCOL
from gradmarket.market.terms import JobState
from requester.store.session import is_shared


def _build_config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["connection"] = connection
    return config


def upgrade_schema(engine: Engine, revision: str = "head") -> None:
    """Upgrades the database; several processes may call it at once.

    Raises Refused, and changes nothing, where the database is of a revision that this release does not have.
    """
    with engine.begin() as connection:
        if is_shared(connection):
            connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended("migrations", 0))))
        config = _build_config(connection)
        known = {one.revision for one in ScriptDirectory.from_config(config).walk_revisions()}
        for there in MigrationContext.configure(connection).get_current_heads():
            if there not in known:
                raise Refused(
                    f"the database is of the revision {there}, which this release does not have",
                    "it is from before 0.1.0, of a development version or of a later release: start that one again, or "
                    "take a new database",
                )
        command.upgrade(config, revision)


# Jobs that another release opened and that are not over: this one would judge and merge them by other rules.

UNDER_WAY: Final = (JobState.AWAITING_FUNDS, JobState.RUNNING, JobState.PAUSED)
SHOWN: Final = 5


def check_unfinished(engine: Engine) -> None:
    """Raises Refused, and changes nothing, if the database has such jobs; it may be of any revision since 0.1.0."""
    if not inspect(engine).has_table("jobs"):
        return
    states = ", ".join(f"'{state.value}'" for state in UNDER_WAY)
    other = f"SELECT id FROM jobs WHERE state IN ({states}) AND protocol <> {PROTOCOL} ORDER BY id"
    with engine.connect() as connection:
        found = connection.execute(text(other))
        names = list(found.scalars())
    if names:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        jobs = ", ".join(names[:SHOWN]) + more
        raise Refused(
            f"another release opened jobs that are not over: {jobs}; nothing was changed",
            "start that release again, and let them finish or cancel them (`gradmarket job cancel JOB`) first",
        )
