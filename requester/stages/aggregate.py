"""Merges the accepted gradients of a round, applies the update, evaluates the new parameters, and closes the round."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from sqlalchemy import exists, select
from sqlalchemy.orm import defer

from gradmarket.market.job import Publication
from gradmarket.market.rules import overlap
from gradmarket.market.terms import JobState, RoundState, TaskState
from requester.context import Context
from requester.feature import MergeWatch, features_of, lateness_in
from requester.live_states import Version
from requester.merge_turns import SPARE_THREADS
from requester.meters import record_span
from requester.moves import blob_cleanup, drawing, faults, next_round, replay, snapshots
from requester.moves.replay import MergedRound, MergeInputs
from requester.store import jobs, merges
from requester.store.locks import hold_named_lock, lock_row
from requester.store.ready_rows import limited
from requester.store.review import is_reviewed
from requester.store.round_sum import find_round_sum
from requester.store.tables import Job, Round, Task
from requester.store.work import RowReader, record_event

TOPIC = "aggregate"
SPARE: Final = SPARE_THREADS
"""Threads that merge other jobs' rounds while one is measured for minutes (requester.merge_turns)."""


def ready(reader: RowReader, _now: float) -> Sequence[str]:
    """Returns jobs whose next round to merge has enough accepted tasks, or whose merge a crash interrupted."""
    rows = reader.session.execute(_UNCLOSED).all()
    return limited([job.id for row, job in rows if row.state == RoundState.MERGING or _may_merge(reader, job, row)])


_ANY_ACCEPTED: Final = exists().where(
    Task.job_id == Round.job_id, Task.merge_round == Round.number, Task.state == TaskState.ACCEPTED
)
"""Rounds with an accepted task: no round is merged from nothing."""
_UNCLOSED: Final = (
    select(Round, Job)
    .join(Job, Job.id == Round.job_id)
    .options(defer(Job.spec))
    .where(Round.state.in_([RoundState.OPEN, RoundState.MERGING]), Job.state == JobState.RUNNING)
    .where((Round.state == RoundState.MERGING) | _ANY_ACCEPTED)
    .order_by(Job.created_at, Round.number)
)


def _may_merge(reader: RowReader, job: Job, row: Round) -> bool:
    """Returns whether the round's tasks are accepted and it is the next to merge, of a job that is not over."""
    if (summed := find_round_sum(reader, jobs.load_spec(job))) is not None:
        return summed.may_merge(reader, job, row.number)
    if job.rewind_to is not None or merges.count_missing_answers(reader, job, row.number) > 0:
        return False
    if not jobs.load_spec(job).overlap:
        return True
    closed = jobs.latest_closed(reader, job.id)
    newest = overlap.BEFORE if closed is None else closed.number
    return overlap.may_merge(row.number, newest) and not jobs.stop_reason(reader, job, closed)


def run(context: Context, job_id: str) -> float | None:
    with context.turns.take(job_id) as turn, hold_named_lock(context.sessions, f"{TOPIC} {job_id}") as mine:
        if not turn or not mine:
            return context.settings.sweep_s
        with faults.report_merge_failure(context, job_id):
            return _merge_next_round(context, job_id)


def _merge_next_round(context: Context, job_id: str) -> float | None:
    closing = _close_for_merging(context, job_id)
    if not isinstance(closing, ClosingRound):
        return closing
    mergers = (feature.merger for feature in features_of(context) if feature.merger is not None)
    merger = next((one for one in mergers if one.takes(context, closing.inputs)), None)
    merged = None if merger is None else merger.merge(context, job_id, closing.inputs)
    if isinstance(merged, float):
        return merged
    if merged is None:
        _merge_here(context, job_id, closing, shared=merger is not None)
    else:
        number = closing.inputs.number
        closed = _close_round(context, job_id, closing, merged)
        if closed is not None:
            blob_cleanup.drop_unneeded(context, job_id)
            if merged.memory is not None and (closed.over or snapshots.is_memory_due(context, job_id, number)):
                with record_span("snapshot"):
                    snapshots.store_snapshot_of(context, job_id, number, closed.at, merged.memory)
    return None


@dataclass(frozen=True)
class ClosingRound:
    """A merge read in one transaction."""

    inputs: MergeInputs
    publication: Publication
    watches: tuple[MergeWatch, ...]


def _merge_here(context: Context, job_id: str, closing: ClosingRound, shared: bool) -> None:
    """Merges a round in this process, and closes it. `shared`: the rounds before and after are a merger's."""
    inputs = closing.inputs
    with record_span("state before"):
        state = replay.state_before(context, job_id, inputs.before)
    with record_span("merge"):
        loss = replay.merge_round(context.blobs, inputs, state)
    with ThreadPoolExecutor(1) as beside:
        with record_span("store parameters"):
            published = replay.store_image(context.blobs, state.update) if state.update.length else None
            updated, stored = replay.store_image_beside(beside, context.blobs, state.parameters)
        images = {updated: state.parameters} | ({published: state.update} if published is not None else {})
        again = {digest: partial(replay.store_image, context.blobs, image) for digest, image in images.items()}
        merged = MergedRound(updated, published, loss, again, lambda: state.parameters.arrays, stored=stored)
        closed = _close_round(context, job_id, closing, merged)
    if closed is None:
        return
    state.version = Version(inputs.number + 1, updated, closed.at)
    due = snapshots.is_snapshot_due(context, state) or shared or closed.over
    if due:
        with record_span("snapshot"):
            snapshots.store_snapshot(context, job_id, state)
    if not closed.over:
        context.states.store_state(job_id, state, context.settings.merge_memory)
    if not due:  # storing the snapshot drops them too
        with record_span("drop unneeded"):
            blob_cleanup.drop_unneeded(context, job_id)


@dataclass(frozen=True)
class _Closed:
    """The time at which a round was closed, and whether its job has ended."""

    at: float
    over: bool


def _close_round(context: Context, job_id: str, closing: ClosingRound, merged: MergedRound) -> _Closed | None:
    """Publishes the update and closes the round; returns None where it is not being merged any more."""
    inputs = closing.inputs
    about = (context, inputs.spec, inputs.number, closing.publication, merged.parameters)
    found = filter(None, (feature.evaluate_round(*about) for feature in features_of(context)))
    metrics, unfit = next(found, (dict[str, float](), ""))
    for watch in closing.watches:
        watch.measure(context, inputs)
    now, spec, number = context.clock(), closing.inputs.spec, closing.inputs.number
    with context.begin() as work:
        work.one_at_a_time(drawing.DRAW)
        job = lock_row(work, Job, job_id)
        row = work.get_one(Round, (job_id, number))
        if row.state != RoundState.MERGING:
            return None
        job.reason = ""
        for watch in closing.watches:
            watch.close(work, job, row, now)
        for feature in features_of(work):
            feature.round_closing(work, job, row, merged, now)
        figures = {"loss": merged.loss if spec.publishes_loss else None, "metrics": metrics}
        kept = {"updated": merged.updated, "published_update": merged.published, "optimizer_state": ""}
        work.set_state_now(row, RoundState.CLOSED, **kept, **figures, closed_at=now)
        for task in merges.used_tasks(work, job_id, number) if not is_reviewed(job) else ():
            work.move(task, TaskState.FINAL)
        if job.ended_at is not None and job.replay_from is None:
            job.replay_from = number  # it was collected without this round
        blob_cleanup.release_blobs_of_round(work, job, number, now)
        record_event(work, job_id, "round_closed", now, round=number, parameters=merged.updated, **figures)
        if unfit and job.state == JobState.RUNNING:
            work.set_state_now(job, JobState.PAUSED, reason=unfit)
            record_event(work, job_id, "paused", now, reason=unfit)
        for feature in features_of(work):
            feature.round_closed(work, job, row, now)
        next_round.continue_job(context, work, job, now)
        if spec.overlap:
            work.notify(TOPIC)
        merged.wait_until_durable()
        blob_cleanup.lock_and_restore_blobs(context, work, merged.again)
        return _Closed(now, job.ended_at is not None)


def _close_for_merging(context: Context, job_id: str) -> ClosingRound | float | None:
    """Moves the round from OPEN to MERGING and fixes the tasks that it uses; moves.next_round handles the others.

    Returns the seconds that the round waits for late tasks, or None if no merge is due.
    """
    with context.begin() as work:
        job, rounds = lock_row(work, Job, job_id), jobs.rounds_now(work, job_id)
        if not rounds.under_way or job.state != JobState.RUNNING:
            return None
        row = rounds.under_way[0]
        if row.state == RoundState.OPEN:
            if not _may_merge(work, job, row):
                return None
            if (wait := lateness_in(work).compute_wait(work, job, row, context.clock())) > 0.0:
                return wait
            chosen = merges.accepted_tasks(work, job_id, row.number)
            summed = find_round_sum(work, jobs.load_spec(job))
            if len(chosen) < jobs.load_spec(job).needed_in(row.number) and summed is None:
                return None
            for task in chosen:
                task.used = True
            if summed is not None:
                summed.replace_receipts(work, job, row.number, chosen, context.clock())
            work.set_state_now(row, RoundState.MERGING)
            next_round.leave_unfinished_tasks(context, work, job, row.number)
        # this process's states of other jobs that ended, in another process or while this one merged them
        others = [other for other in context.states.jobs() if other != job_id]
        for ended in jobs.list_ended_jobs(work, others) if others else ():
            context.states.take(ended)
        used = merges.used_tasks(work, job_id, row.number)
        return ClosingRound(
            inputs=replay.inputs_of(work, job, row, used),
            publication=jobs.load_publication(job),
            watches=tuple(
                watch for feature in features_of(work) if (watch := feature.watch_merge(work, job, used)) is not None
            ),
        )
