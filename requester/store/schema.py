"""Upgrades a database to the newest revision of `migrations/`."""

from importlib import import_module
from pathlib import Path
from typing import Final

from sqlalchemy import Engine, inspect, text

import migrations
from gradmarket.market.errors import Refused
from gradmarket.market.release import PROTOCOL
from gradmarket.market.terms import JobState


def upgrade_schema(engine: Engine, revision: str = "head") -> None:
    """Upgrades the database; several processes may call it at once.

    Raises Refused, and changes nothing, where the database is of a revision that this release does not have.
    """
    if revision == "head":
        with engine.connect() as connection:  # alembic takes longer than to ask
            versioned = inspect(connection).has_table("alembic_version")
            there = connection.execute(text("SELECT version_num FROM alembic_version")).scalars() if versioned else ()
            if list(there) == [find_newest_revision()]:
                return
    import_module("requester.store.revisions").run_revisions(engine, revision)


def find_newest_revision() -> str:
    """Returns the newest revision by the names of the files, such as r0053_since_first_release.py."""
    files = Path(migrations.__file__).parent.glob("versions/r*_*.py")
    return max(file.name.removeprefix("r").partition("_")[0] for file in files)


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
