"""The stage that ends the steps of a round's secure aggregation, and takes the masks off its sum.

The rules are in market.features.secure_sums.
A step ends when all its messages have come, or when its time is over: holders that are missing then have dropped out. A
round without an obtainable sum begins anew as long as no holder has received the set of survivors, and never after
that: each signs one set a round. It then waits for the survivors, and pauses the job where none of them may answer.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from contracts.events import beacon, opened_job
from gradmarket.market.errors import Refused
from gradmarket.market.features.secure_sums import collector
from gradmarket.market.features.secure_sums.job_sum import build_sum_terms
from gradmarket.market.features.secure_sums.signed import key_list
from gradmarket.market.features.secure_sums.sum_messages import (
    HolderKeysMessage,
    MaskedMessage,
    SharesMessage,
    SurvivorsProposed,
    SurvivorsSigned,
    UnmaskAnswer,
)
from gradmarket.market.gradient.codecs import fp32
from gradmarket.market.gradient.payload import encode_payload, unflatten_vector
from gradmarket.market.terms import Digest, JobState, RoundState
from gradmarket.market.wire import Wire
from requester.context import Context
from requester.features.secure_sums import sum_rows
from requester.features.secure_sums.secure_tables import SecureSum
from requester.features.secure_sums.sum_rows import MASKED, SUMMED, sum_topic
from requester.moves import blob_cleanup
from requester.store import jobs, unneeded
from requester.store.facts import layout_of
from requester.store.locks import hold_named_lock, lock_row
from requester.store.ready_rows import limited
from requester.store.tables import Job, Task
from requester.store.work import RowReader, Work, record_event

TAG: Final = 32
"""Bytes after a stored vector, which its holder does not know: no blob of others is the same, to be dropped with it."""
ANEW: Final = "the sum of round {} cannot be had: {}"
STUCK: Final = (
    "holders may have signed the survivors of round {}, so it must not be done again, and its sum cannot be had yet: "
    "{}; resume the job once they are here again"
)


def begin_aggregation(context: Context, job_id: str) -> bool:
    """Begins the aggregation of the open round; False where the chain has no block to draw its graph from yet."""
    with context.reading() as reader:
        chain_job = reader.get_one(Job, job_id).chain_job or 0
    drawn = beacon(context.ledger, opened_job(context.ledger, chain_job))
    if drawn is None:
        return False
    with context.begin() as work:
        job = lock_row(work, Job, job_id)
        row = sum_rows.first_under_way(work, job_id)
        if row is not None and sum_rows.of_round(work, job_id, row.number) is None:
            work.add(sum_rows.build_first_attempt(work, job, row, drawn))
            work.notify(sum_topic(job_id))
    return True


def end_step(context: Context, job_id: str, sum_id: str) -> None:
    """Ends the open step if its time has come; begins the sum anew where it cannot be computed any more."""
    with context.begin() as work:
        job, row = lock_row(work, Job, job_id), lock_row(work, SecureSum, sum_id)
        if job.state != JobState.RUNNING or row.step >= SUMMED - 1:
            return
        try:
            left = _end_open_step(context, work, job, row)
        except Refused as refused:
            if row.step > MASKED:
                _await_answers(context, work, job, row, str(refused))
            else:
                # the next attempt begins, in which all may take part; now and then the requester is asked first
                now, why = context.clock(), str(refused)
                _release_messages(work, row, now)
                row.attempt += 1
                row.step, row.due_at, row.key_list, row.sharers, row.survivors = 1, None, None, None, None
                row.expected = len(sum_rows.build_current_attempt(job, row).holders)
                record_event(work, job.id, "sum_failed", now, round=row.round, attempt=row.attempt - 1, reason=why)
                if row.attempt % context.settings.max_attempts == 0:
                    _pause_job(work, job, ANEW.format(row.round, why), now)
                work.notify(sum_topic(job.id), "assign")
        else:
            if left is None:
                work.notify(sum_topic(job_id))
            else:
                row.due_at = left
    blob_cleanup.drop_unneeded(context, job_id)


def _end_open_step(context: Context, work: Work, job: Job, row: SecureSum) -> float | None:
    """Ends the open step, and opens the next one for as many holders; returns when to look again where others may
    still come.

    Raises Refused where the remaining holders cannot give the sum.
    """
    members, now, deadlines = sum_rows.build_current_attempt(job, row), context.clock(), jobs.load_spec(job).deadlines
    replies: Mapping[int, Wire]
    if row.step == 1:
        keys = sum_rows.parse_messages(work, row, row.step, HolderKeysMessage)
        if len(keys) < members.plan.least:
            return now + deadlines.wave_s
        if len(keys) < row.expected and sum_rows.missing_leases(work, row, members.holders, now):
            return now + context.settings.sweep_s
        neighbours = collector.neighbour_keys(members, keys)
        replies = {number: one.model_copy(update={"key_list": b""}) for number, one in neighbours.items()}
        row.key_list, count = key_list(members, keys), len(keys)
    elif row.step == 2:
        shares = sum_rows.parse_messages(work, row, row.step, SharesMessage)
        row.sharers, replies = collector.shares_for_holders(members, shares)
        count = len(shares)
    elif row.step == MASKED:
        found = sum_rows.list_messages(work, row, row.step)
        row.survivors = collector.pack_survivors(members, row.sharers or b"", [one.holder for one in found])
        proposed = SurvivorsProposed(survivors=row.survivors)
        replies, count = {one.holder: proposed for one in found}, len(found)
    else:
        signatures = sum_rows.parse_messages(work, row, row.step, SurvivorsSigned)
        masked = sum_rows.parse_messages(work, row, MASKED, MaskedMessage)
        replies = collector.unmask_requests(members, row.survivors or b"", signatures, masked)
        count = len(signatures)
    sum_rows.store_replies(work, row, replies)
    row.step, row.expected = row.step + 1, count
    row.due_at = context.clock() + (deadlines.upload_s if row.step == MASKED else deadlines.wave_s)
    return None


def _pause_job(work: Work, job: Job, reason: str, now: float) -> None:
    if work.set_state_now(job, JobState.PAUSED, reason=reason):
        record_event(work, job.id, "paused", now, reason=reason)


def _release_messages(work: Work, row: SecureSum, now: float) -> None:
    unneeded.release_blobs(work, row.job_id, blob_cleanup.PAYLOAD, sum_rows.delete_messages(work, row.id), now)


def forget_closed_sums(context: Context, job_id: str) -> None:
    """Deletes the messages in sums of closed rounds, and in those of a job that is over."""
    with context.begin() as work:
        for sum_id in sum_rows.list_closed_sums(work, job_id):
            row = lock_row(work, SecureSum, sum_id)
            _release_messages(work, row, context.clock())
            unneeded.release_blobs(work, job_id, blob_cleanup.PAYLOAD, [row.total], context.clock())
    blob_cleanup.drop_unneeded(context, job_id)


def unmask_sum(context: Context, job_id: str, sum_id: str) -> None:
    """Takes the masks off the sum, as soon as enough has come for it."""
    with context.reading() as reader:
        job, row = reader.get_one(Job, job_id), reader.get_one(SecureSum, sum_id)
        mean, why, survivors = b"", "", row.survivors or b""
        try:
            members, layout = sum_rows.build_current_attempt(job, row), layout_of(job)
            keys = sum_rows.parse_messages(reader, row, 1, HolderKeysMessage)
            answers = sum_rows.parse_messages(reader, row, SUMMED - 1, UnmaskAnswer).values()
            left = collector.masks_left(members, keys, row.sharers or b"", survivors, answers)
            total = np.zeros(members.size, members.ring.dtype)
            for one in sum_rows.list_messages(reader, row, MASKED):
                mapped = context.blobs.mapped(Digest(one.vector or ""))
                with mapped as data, memoryview(data) as view, view[:-TAG] as masked:
                    np.add(total, members.ring.read(masked, members.size), out=total)
            # the mean of the survivors' answers as one payload; its loss and buffers are zeros
            flat, count = np.zeros(layout.size, np.float32), int(members.members(survivors).sum())
            units = build_sum_terms(jobs.load_spec(job)).units
            flat[layout.gradient] = units.mean(left.taken_off(members, total), count)
            mean = bytes(encode_payload(layout, unflatten_vector(layout, flat), fp32, bytes(32)))
        except Refused as refused:
            why = str(refused)
    kept = context.blobs.put(mean) if mean else None
    with context.begin() as work:
        job, row = lock_row(work, Job, job_id), lock_row(work, SecureSum, sum_id)
        if row.step != SUMMED - 1 or job.state != JobState.RUNNING:
            return
        if kept is None:
            _await_answers(context, work, job, row, why)
            return
        blob_cleanup.lock_and_restore_blobs(context, work, {kept: partial(context.blobs.put, mean)})
        row.total, row.step, row.due_at = kept, SUMMED, None
        now = context.clock()
        found = sum_rows.list_messages(work, row, MASKED)
        unneeded.release_blobs(work, row.job_id, blob_cleanup.PAYLOAD, [one.vector for one in found], now)
        for one in found:
            one.vector = None
        count = int(sum_rows.build_current_attempt(job, row).members(row.survivors or b"").sum())
        record_event(work, job_id, "summed", context.clock(), round=row.round, holders=count)
        work.notify(sum_topic(job_id), "aggregate", "assign")
    blob_cleanup.drop_unneeded(context, job_id)


def replace_receipts_by_mean(work: Work, job: Job, number: int, chosen: Sequence[Task], now: float) -> None:
    """Replaces the receipts, for which holders of a summed round are paid, by the round's mean."""
    total = sum_rows.find_mean_blob(work, job.id, number) if jobs.load_spec(job).secure else None
    if total is not None:
        unneeded.release_blobs(work, job.id, blob_cleanup.PAYLOAD, [task.payload for task in chosen], now)
        for task in chosen:
            task.payload = total


def _await_answers(context: Context, work: Work, job: Job, row: SecureSum, why: str) -> None:
    """Waits for survivors that may still answer.

    Where none may, the job is paused: another attempt would reveal the difference of two sums. Once the job is resumed,
    the next survivor that comes back is waited for.
    """
    now = context.clock()
    if sum_rows.is_answer_awaited(work, row, sum_rows.build_current_attempt(job, row).holders, now):
        row.due_at = now + jobs.load_spec(job).deadlines.wave_s
    else:
        row.due_at = None
        _pause_job(work, job, STUCK.format(row.round, why), now)


TOPIC = "unmask"


def ready(reader: RowReader, now: float) -> Sequence[str]:
    return limited(list(dict.fromkeys([*sum_rows.list_due_jobs(reader, now), *sum_rows.jobs_over(reader)])))


def run(context: Context, job_id: str) -> float | None:
    with hold_named_lock(context.sessions, f"{TOPIC} {job_id}") as mine:
        if not mine:
            return context.settings.sweep_s
        forget_closed_sums(context, job_id)
        with context.reading() as reader:
            due = job_id in sum_rows.list_due_jobs(reader, context.clock())
            row = sum_rows.first_under_way(reader, job_id)
            begun = None if row is None else sum_rows.of_round(reader, job_id, row.number)
        if not due or row is None or row.state != RoundState.OPEN:
            return None
        if begun is None:
            return None if begin_aggregation(context, job_id) else context.settings.sweep_s
        if begun.step == SUMMED - 1:
            unmask_sum(context, job_id, begun.id)
        else:
            end_step(context, job_id, begun.id)
        return None
