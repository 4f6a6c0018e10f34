"""Opens the next round of running jobs that have none open, or ends the job. A round is a pure function of its job."""

from collections.abc import Sequence
from datetime import UTC, datetime

from gradmarket.market.job import Publication
from gradmarket.market.rules import stopping
from gradmarket.market.terms import Digest, JobState, RoundState, Units
from gradmarket.requester.context import Context
from gradmarket.requester.moves import left_tasks
from gradmarket.requester.moves.ending import end
from gradmarket.requester.moves.task_attempts import task
from gradmarket.requester.store import audits, jobs, progress
from gradmarket.requester.store.event_log import tell
from gradmarket.requester.store.locks import locked
from gradmarket.requester.store.prices import price_of
from gradmarket.requester.store.tables import Job, Round
from gradmarket.requester.store.work import RowReader, Work

TOPIC = "plan"


def ready(reader: RowReader, now: float) -> Sequence[str]:
    return [
        job.id
        for job in progress.running(reader)
        if not jobs.has_open_round(reader, job.id) or stopping.overdue(jobs.spec(job), _time(now))
    ]


def run(context: Context, job_id: str) -> float | None:
    now = context.clock()
    with context.begin() as work:
        job = locked(work, Job, job_id)
        if job.state != JobState.RUNNING:
            return None
        if stopping.overdue(jobs.spec(job), _time(now)):
            end(context, work, job, JobState.FINISHED, "its date has come")
            return None
        if jobs.has_open_round(work, job_id):
            return None
        return _go_on(context, work, job, now)


def _go_on(context: Context, work: Work, job: Job, now: float) -> float | None:
    """Opens the next round, ends the job or pauses it for lack of money.

    Waits for open audits whose failure could take back the rounds that this decision is based on.
    """
    latest = jobs.latest_round(work, job.id)
    reason = latest and stopping.reached(
        jobs.spec(job), latest.number, latest.metrics or {}, jobs.earned(work, job.id) * int(job.unit)
    )
    if latest and _not_yet(work, job, latest.number if reason else latest.number + 1 - audits.BEHIND):
        return context.settings.sweep_s
    if reason:
        end(context, work, job, JobState.FINISHED, reason)
    elif _affordable(work, job, price := price_of(job, latest)):
        _open(context, work, job, latest, price, now)
    else:
        work.move_now(job, JobState.PAUSED, reason="the escrow does not cover another round: fund the job")
        tell(work, job.id, "paused", now, reason=job.reason)
    return None


def _not_yet(reader: RowReader, job: Job, through: int) -> bool:
    """Returns whether a round is to be taken back or an audit of a round up to `through` is not over."""
    first = audits.earliest(reader, job.id)
    return job.rewind_to is not None or (first is not None and first <= through)


def _affordable(reader: RowReader, job: Job, price: Units) -> bool:
    """Returns whether the deposit less the earnings pays for a round in which each task takes only its quorum."""
    spec = jobs.spec(job)
    least = spec.tasks_needed * spec.plan().quorum * price
    return job.deposited - jobs.earned(reader, job.id) >= least


def _open(context: Context, work: Work, job: Job, latest: Round | None, price: Units, now: float) -> None:
    publication = Publication.model_validate(job.publication)
    number = 0 if latest is None else latest.number + 1
    parameters = publication.parameters if latest is None else Digest(latest.updated or "")
    values = {"parameters": parameters, "price": price, "optimizer_state": "", "opened_at": now}
    row = work.get(Round, (job.id, number))
    if row is None:
        row = Round(job_id=job.id, number=number, state=RoundState.OPEN, **values)
        work.add(row)
    else:
        work.move_now(row, RoundState.OPEN, **values)
    job.price = price
    work.flush()
    attempts = jobs.first_attempts(work, job.id, number)
    for index in left_tasks.next_tasks(work, job, number):
        work.add(task(context, job, row, index, attempts.get(index, 0), now))
    tell(work, job.id, "round_opened", now, round=number, parameters=parameters, price=price)
    work.notify("assign")


def _time(now: float) -> datetime:
    return datetime.fromtimestamp(now, UTC)
