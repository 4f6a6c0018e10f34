"""Assigns open tasks to workers that ask for work, by a replayable random draw among the eligible ones.

It is never first come, first served. The draw is in moves.drawing.
"""

from collections.abc import Sequence

from gradmarket.market.terms import JobState
from requester.context import Context
from requester.moves import drawing
from requester.store import ready_rows
from requester.store.locks import lock_row
from requester.store.tables import Job
from requester.store.work import RowReader

TOPIC = "assign"


def ready(reader: RowReader, now: float) -> Sequence[str]:
    return ready_rows.list_assignable_jobs(reader, now)


def run(context: Context, job_id: str) -> float | None:
    now = context.clock()
    with context.begin() as work:
        work.one_at_a_time(drawing.DRAW)
        job = lock_row(work, Job, job_id)
        return drawing.draw_workers(context, work, job, now) if job.state == JobState.RUNNING else None
