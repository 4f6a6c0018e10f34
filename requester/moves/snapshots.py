"""Snapshots of optimizer states, taken beside the rounds; what lies before the oldest one needed is collected."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from gradmarket.market.terms import Digest, RoundState
from gradmarket.requester.context import Context
from gradmarket.requester.live_states import LiveState
from gradmarket.requester.moves import blob_cleanup, replay
from gradmarket.requester.store import audits, jobs, unneeded
from gradmarket.requester.store.locks import locked
from gradmarket.requester.store.tables import Job, Round
from gradmarket.requester.store.work import RowReader

SMALL: Final = 2**16
"""Bytes of a state up to which it is stored at every round: that of an optimizer without memory."""


def due(context: Context, state: LiveState) -> bool:
    """Returns whether the state, as it is after the newest merge, should be stored now."""
    rounds, seconds = state.version.round - 1 - state.snapshot, time.monotonic() - state.snapshot_at
    settings = context.settings
    return state.memory.length <= SMALL or rounds >= settings.snapshot_rounds or seconds >= settings.snapshot_s


def take(context: Context, job_id: str, state: LiveState) -> None:
    """Stores the optimizer's state after the round before the state's.

    Does not where that round was taken back meanwhile, or the job has ended.
    """
    number, digest = state.version.round - 1, replay.store(context.blobs, state.memory)
    with context.begin() as work:
        job = locked(work, Job, job_id)
        row = work.get_one(Round, (job_id, number))
        stands = row.state == RoundState.CLOSED and row.closed_at == state.version.closed_at
        stands = stands and job.ended_at is None
        if stands:
            again = partial(replay.store, context.blobs, state.memory)
            blob_cleanup.keep_still(context, work, {digest: again})
            row.optimizer_state = digest
        else:
            unneeded.add(work, job_id, blob_cleanup.SNAPSHOT, [digest], context.clock())
    if stands:
        state.snapshot, state.snapshot_at = number, time.monotonic()
    collect(context, job_id)


def collect(context: Context, job_id: str) -> None:
    """Deletes payloads and snapshots that no replay needs any more; once the job has ended, all of them."""
    with context.begin() as work:
        job = locked(work, Job, job_id)
        payloads, old = _unneeded(work, job)
        newest, now = jobs.latest_closed(work, job_id), context.clock()
        oldest = newest.number - blob_cleanup.kept_newest(jobs.spec(job)) if newest else -1
        if job.ended_at is not None:
            blob_cleanup.updates_over(work, job, now)
        unneeded.add(work, job_id, blob_cleanup.PAYLOAD, payloads, now)
        unneeded.add(work, job_id, blob_cleanup.SNAPSHOT, [row.optimizer_state for row in old], now)
        unneeded.add(work, job_id, blob_cleanup.PARAMETERS, [row.updated for row in old], now, oldest)
        for row in old:
            row.optimizer_state = Digest("")
    blob_cleanup.drop_unneeded(context, job_id)


def _unneeded(reader: RowReader, job: Job) -> tuple[list[str], Sequence[Round]]:
    """Returns payloads that are merged for good, and rounds whose snapshots are older than the one to replay from."""
    if job.replay_from is None:
        return [], []
    bound, latest = _replayed_from(reader, job, job.replay_from), jobs.latest_round(reader, job.id)
    over = job.ended_at is not None and (latest is None or bound > latest.number)
    rows = jobs.snapshots(reader, job.id, bound)
    base = bound - 1 if over else rows[-1].number if rows else -1
    payloads = jobs.merged_payloads(reader, job, base)
    job.replay_from = None if over else max(job.replay_from, base + 1)
    return payloads, rows if over else rows[:-1]


def _replayed_from(reader: RowReader, job: Job, since: int) -> int:
    """Returns the first round that may have to be merged again: final tasks alone are beyond every audit."""
    bound = revocable(reader, job)
    first = audits.first_revocable(reader, job.id, since) if jobs.spec(job).audited else None
    return bound if first is None else min(bound, first)


def revocable(reader: RowReader, job: Job) -> int:
    """Returns the first round that may still be taken back or changed by an audit."""
    latest = jobs.latest_round(reader, job.id)
    if latest is None:
        return 0
    if not jobs.spec(job).audited:
        return latest.number + 1
    first = audits.earliest(reader, job.id)
    if (job.ended_at is not None and first is not None) or job.rewind_to is not None:
        return 0
    over = latest.number + 1  # a late answer may be for a round that never opened
    behind = audits.BEHIND + jobs.spec(job).overlap
    through = over if job.ended_at is not None else latest.number - behind
    return through + 1 if first is None else min(through + 1, first)
