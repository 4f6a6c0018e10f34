"""Opens the next round of running jobs once it may open, or ends the job (moves.next_round)."""

from collections.abc import Sequence
from datetime import UTC, datetime

from gradmarket.market.rules import stopping
from gradmarket.market.terms import JobState
from requester.context import Context
from requester.moves import drawing, next_round
from requester.moves.ending import end_job
from requester.store import jobs
from requester.store.locks import lock_row
from requester.store.ready_rows import limited
from requester.store.tables import Job
from requester.store.work import RowReader

TOPIC = next_round.PLAN


def ready(reader: RowReader, now: float) -> Sequence[str]:
    """Returns jobs whose date has come, or whose next round may open or end them as far as their reviews allow it."""
    found = []
    for job in jobs.running(reader):
        may_open = not job.under_way or job.spec.overlap > 0
        dated = job.spec.stop or job.spec.deadlines.end is not None
        overdue = dated and stopping.is_overdue(job.spec.ending, _build_datetime(now))
        if overdue or (may_open and next_round.ready(reader, reader.get_one(Job, job.id))):
            found.append(job.id)
    return limited(found)


def run(context: Context, job_id: str) -> float | None:
    now = context.clock()
    with context.begin() as work:
        work.one_at_a_time(drawing.DRAW)
        job = lock_row(work, Job, job_id)
        if job.state != JobState.RUNNING:
            return None
        if stopping.is_overdue(jobs.load_spec(job).ending, _build_datetime(now)):
            end_job(context, work, job, JobState.FINISHED, "its date has come")
            return None
        if not next_round.is_round_due(work, job):
            return None
        return next_round.open_round_or_end(context, work, job, now)


def _build_datetime(now: float) -> datetime:
    return datetime.fromtimestamp(now, UTC)
