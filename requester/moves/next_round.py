"""Opens a job's next round, or ends the job: a round is a pure function of its job. The rule is market.rules.overlap.

The transaction that closes a round opens the next one and gives out its leases, unless something prevents it.
"""

from typing import Final

from gradmarket.market.rules import overlap
from gradmarket.market.rules.lifecycle import AWAITS_TOP_UP, ESCROW_SHORT
from gradmarket.market.terms import Digest, JobState, RoundState, Units
from requester.context import Context
from requester.moves import drawing, left_tasks
from requester.moves.ending import end_job
from requester.moves.task_attempts import build_task
from requester.store import jobs, merges
from requester.store.event_log import record_event
from requester.store.jobs import RoundsNow
from requester.store.prices import price_of
from requester.store.review import review_of
from requester.store.tables import Job, Round
from requester.store.work import RowReader, Work

PLAN: Final = "plan"


def is_round_due(reader: RowReader, job: Job) -> bool:
    """Returns whether no round is under way, or the next may open before its predecessor is merged, or the job ends."""
    return _is_next_round_due(reader, job, jobs.rounds_now(reader, job.id))


def ready(reader: RowReader, job: Job) -> bool:
    """Returns whether the job is due and waits for no review."""
    rounds = jobs.rounds_now(reader, job.id)
    return _is_next_round_due(reader, job, rounds) and not _waits(
        reader, job, rounds, jobs.stop_reason(reader, job, rounds.closed)
    )


def _is_next_round_due(reader: RowReader, job: Job, rounds: RoundsNow) -> bool:
    if not rounds.under_way:
        return True
    return jobs.load_spec(job).overlap > 0 and (
        _may_open_next(job, rounds) or bool(jobs.stop_reason(reader, job, rounds.closed))
    )


def _may_open_next(job: Job, rounds: RoundsNow) -> bool:
    spec, closed = jobs.load_spec(job), rounds.closed
    newest = overlap.BEFORE if closed is None else closed.number
    return overlap.may_open(rounds.following, newest, spec.overlap, spec.rounds)


def open_round_or_end(context: Context, work: Work, job: Job, now: float) -> float | None:
    """Opens the next round and draws workers for it, ends the job or pauses it for lack of money.

    Waits for open reviews that could take back the rounds that this decision is based on. The caller has locked
    the draw (moves.drawing) and the job, which is running and due.
    """
    return _go_on(context, work, job, jobs.rounds_now(work, job.id), now)


def _go_on(context: Context, work: Work, job: Job, rounds: RoundsNow, now: float) -> float | None:
    closed, number = rounds.closed, rounds.following
    reason = jobs.stop_reason(work, job, closed)
    if _waits(work, job, rounds, reason):
        return context.settings.sweep_s
    if reason:
        end_job(context, work, job, JobState.FINISHED, reason)
    elif _is_round_affordable(work, job, rounds, price := price_of(work, job, closed)):
        _open_round(context, work, job, number, price, now)
        if drawing.draw_workers(context, work, job, now) is not None:
            work.notify("assign")
    elif rounds.under_way:
        return context.settings.sweep_s  # its work may cost less than the amount set aside for it
    elif job.budget > job.deposited:
        job.reason = AWAITS_TOP_UP
        return context.settings.sweep_s
    else:
        work.set_state_now(job, JobState.PAUSED, reason=f"{ESCROW_SHORT}: fund the job")
        record_event(work, job.id, "paused", now, reason=job.reason)
    return None


def _waits(reader: RowReader, job: Job, rounds: RoundsNow, reason: str) -> bool:
    """Returns whether a review may still take back rounds that this decision is based on; `reason`: why
    the job ends.
    """
    behind = overlap.ROUNDS_BEHIND + jobs.load_spec(job).overlap
    return _not_yet(reader, job, rounds.closed.number if rounds.closed and reason else rounds.following - behind)


def _not_yet(reader: RowReader, job: Job, through: int) -> bool:
    """Returns whether a round is to be taken back or the review of a round up to `through` is still open."""
    first = review_of(reader).find_first_open_round(reader, job.id)
    return job.rewind_to is not None or (first is not None and first <= through)


def _is_round_affordable(reader: RowReader, job: Job, rounds: RoundsNow, price: Units) -> bool:
    """Returns whether the deposit less the earnings pays for a round in which each task takes only its quorum.

    The same amount for the missing answers of rounds under way is set aside first.
    """
    spec, later = jobs.load_spec(job), jobs.compute_reserve_per_gradient(job) - job.price
    owed = spec.needed_in(rounds.following) * (price + later)
    for open_round in rounds.under_way[:1]:
        under_way = open_round.number
        owed += merges.count_missing_answers(reader, job, under_way, spec.needed_in(under_way)) * (
            open_round.price + later
        )
    return job.deposited - jobs.sum_earned_units(reader, job.id) >= spec.fullest_plan.quorum * owed


def _open_round(context: Context, work: Work, job: Job, number: int, price: Units, now: float) -> None:
    publication, job.reason = jobs.load_publication(job), ""
    parameters = _find_start_parameters(work, job, number) or publication.parameters
    values = {"parameters": parameters, "price": price, "optimizer_state": "", "opened_at": now}
    row = work.get(Round, (job.id, number))
    if row is None:
        row, attempts = Round(job_id=job.id, number=number, state=RoundState.OPEN, **values), dict[int, int]()
        work.add(row)
    else:
        work.set_state_now(row, RoundState.OPEN, **values)
        attempts = jobs.first_attempts(work, job.id, number)
    job.price = price
    for index in left_tasks.next_tasks(work, job, number):
        work.add(build_task(context, job, row, index, attempts.get(index, 0), now))
    record_event(
        work, job.id, "round_opened", now, round=number, parameters=parameters, price=str(price * int(job.unit))
    )
    if publication.spec.overlap:
        work.notify(PLAN)


def _find_start_parameters(reader: RowReader, job: Job, number: int) -> Digest | None:
    """Returns the parameters that the round's tasks start from; None for the published ones."""
    row = reader.get(Round, (job.id, overlap.starts_after(number, jobs.load_spec(job).overlap)))
    return None if row is None else Digest(row.updated or "")


def continue_job(context: Context, work: Work, job: Job, now: float) -> None:
    """Goes on after a round is closed, in its transaction. The caller has locked the draw and the job."""
    rounds = jobs.rounds_now(work, job.id)
    going_on = job.state == JobState.RUNNING and _is_next_round_due(work, job, rounds)
    if not going_on or _go_on(context, work, job, rounds, now) is not None:
        work.notify(PLAN)
