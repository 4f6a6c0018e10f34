"""Jobs that another release opened and that are not over: this one would judge and merge them by other rules."""

from typing import Final

from sqlalchemy import Engine, inspect, text

from gradmarket.market.errors import Refused
from gradmarket.market.release import PROTOCOL
from gradmarket.market.terms import JobState

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
