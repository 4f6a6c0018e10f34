"""Opens a job's next round, or ends the job: a round is a pure function of its job. The rule is market.rules.overlap.

The transaction that closes a round opens the next one and gives out its leases, unless something prevents it.

Where `staleness` allows it, a task that somebody works on goes on, and its answer is in a later merge. Else what was
committed is judged and paid, and not merged. Rows of tasks that no merge takes are first in line in the next round.
"""

from typing import Final

from gradmarket.market.rules import overlap
from gradmarket.market.rules.lifecycle import AWAITS_TOP_UP, ESCROW_SHORT
from gradmarket.market.terms import Digest, JobState, RoundState, TaskState, Units
from requester.context import Context
from requester.moves import drawing
from requester.moves.ending import cancel_open_tasks, end_job
from requester.moves.task_attempts import build_task
from requester.store import jobs, merges, tasks
from requester.store.facts import price_of
from requester.store.in_hand import of_tasks
from requester.store.jobs import RoundsNow
from requester.store.ready_rows import BUSY
from requester.store.review import review_of
from requester.store.tables import Job, Round
from requester.store.work import RowReader, Work, record_event

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
    spec, closed = jobs.load_spec(job), rounds.closed
    if spec.overlap == 0:
        return False
    newest = overlap.BEFORE if closed is None else closed.number
    may_open = overlap.may_open(rounds.following, newest, spec.overlap, spec.rounds)
    return may_open or bool(jobs.stop_reason(reader, job, closed))


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
        publication, job.reason = jobs.load_publication(job), ""
        start = work.get(Round, (job.id, overlap.starts_after(number, jobs.load_spec(job).overlap)))
        parameters = publication.parameters if start is None or not start.updated else Digest(start.updated)
        values = {"parameters": parameters, "price": price, "optimizer_state": "", "opened_at": now}
        row = work.get(Round, (job.id, number))
        if row is None:
            row, attempts = Round(job_id=job.id, number=number, state=RoundState.OPEN, **values), dict[int, int]()
            work.add(row)
        else:
            work.set_state_now(row, RoundState.OPEN, **values)
            attempts = jobs.first_attempts(work, job.id, number)
        job.price = price
        for index in next_tasks(work, job, number):
            work.add(build_task(context, job, row, index, attempts.get(index, 0), now))
        record_event(
            work, job.id, "round_opened", now, round=number, parameters=parameters, price=str(price * int(job.unit))
        )
        if publication.spec.overlap:
            work.notify(PLAN)
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
    through = rounds.closed.number if rounds.closed and reason else rounds.following - behind
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


def continue_job(context: Context, work: Work, job: Job, now: float) -> None:
    """Goes on after a round is closed, in its transaction. The caller has locked the draw and the job."""
    rounds = jobs.rounds_now(work, job.id)
    going_on = job.state == JobState.RUNNING and _is_next_round_due(work, job, rounds)
    if not going_on or _go_on(context, work, job, rounds, now) is not None:
        work.notify(PLAN)


def leave_unfinished_tasks(context: Context, work: Work, job: Job, number: int) -> None:
    """Leaves the unaccepted tasks; called in the transaction that begins a round's merge.

    Where the merge needs all tasks, none is left.
    """
    spec = jobs.load_spec(job)
    if spec.secure is None and spec.tasks_needed == spec.tasks_per_round:
        return
    if not spec.staleness:
        cancel_open_tasks(context, work, job.id, number)
        return
    hands = of_tasks(work, tasks.lock_unaccepted_tasks(work, job.id, number)).values()
    unbegun = [hand for hand in hands if hand.task.state == TaskState.OPEN and hand.task.wave == 0]
    idle = [hand for hand in unbegun if not hand.in_state(*BUSY)]  # beginning them anew costs nothing
    left = [hand.task for hand in hands if hand not in idle]
    for hand in idle:
        work.move(hand.task, TaskState.CANCELLED, ended_at=context.clock(), reason="it begins anew in the next round")
    for task in left:
        task.merge_round = number + 1
    if hands:
        facts = {"late": [task.id for task in left], "again": [hand.task.id for hand in idle]}
        record_event(work, job.id, "tasks_left", context.clock(), round=number, **facts)


def next_tasks(reader: RowReader, job: Job, number: int) -> list[int]:
    """Returns the tasks that a round opens with: those that earlier rounds left and no worker holds, then new ones.

    Tasks of earlier rounds that go on count too, so that no merge has more answers than the job has tasks in a round.
    """
    spec = jobs.load_spec(job)
    if not spec.leaves_tasks:
        return list(spec.tasks_of(number))
    left = tasks.left_before(reader, job.id, number)
    again = sorted(index for index, goes_on in left.items() if not goes_on)
    first = tasks.first_new_task(reader, job.id, number)
    return [*again, *range(first, first + spec.tasks_per_round - len(left))]
