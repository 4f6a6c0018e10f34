"""A merge that several processes do, on one machine or on many: each takes parts of it, from blobs to blobs.

    squares of each part (where gradients are clipped) -> the factor -> a step of each part -> joined parameters

A part's row is its request, and its result is a function of durable blobs: a killed process leaves the row unchanged,
and a process that repeats a part stores the same bytes. The optimizer's memory stays in parts from round to round.
These are only copies: the truth is the snapshots and payloads (moves.replay), from which one process merges where a
part is gone.
"""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from enum import Enum
from functools import partial
from typing import Final

import numpy as np
import structlog

from gradmarket.market.admissible import move_of
from gradmarket.market.errors import NotFound
from gradmarket.market.features import part_merges
from gradmarket.market.gradient.round_merge import merged_shards
from gradmarket.market.gradient.round_update import increase_counter
from gradmarket.market.gradient.shards import Shards
from gradmarket.market.terms import Digest, JobState, RoundState
from graphdoc import tensors
from graphdoc.encoding import Bytes
from requester.context import Context
from requester.feature import Merger
from requester.features.part_merges import merge_part_rows
from requester.features.part_merges.merge_part_rows import MergePart
from requester.meters import record_span
from requester.moves import blob_cleanup, faults, replay
from requester.moves.replay import MergedRound, MergeInputs
from requester.store import jobs, unneeded
from requester.store.facts import facts_of
from requester.store.locks import hold_named_lock, lock_row
from requester.store.tables import Job, Round
from requester.store.work import RowReader, Work

TOPIC = "parts"
PART: Final = "part"
"""The kind under which a job releases a blob that is a part's result or memory."""
log = structlog.get_logger("gradmarket.merges")


class Progress(Enum):
    """The next move of a merge: all of it here, nothing yet, or joining its parts."""

    HERE = 1
    WAITING = 2
    DONE = 3


def is_shared(context: Context, inputs: MergeInputs) -> bool:
    """Returns whether several processes merge this job's rounds.

    The aggregator must work shard by shard. An update in few bytes is written by one process.
    """
    settings, recipe = context.settings, inputs.recipe
    large = 4 * recipe.layout.size >= settings.merge_spread
    several = settings.stages == "celery" and large
    return several and recipe.aggregator.SHARDWISE and move_of(inputs.spec).downlink is None


def request_next_parts(context: Context, job_id: str, inputs: MergeInputs) -> Progress:
    """Requests the next parts of a merge once those before are done. The caller is alone with the job's merges."""
    with context.reading() as reader:
        rows = merge_part_rows.of_round(reader, job_id, inputs.number)
        if not rows:
            # where a blob that the parts read is not stored, one process replays, or reports it
            memory = (_find_memory(reader, job_id, inputs.number, part) for part in _step_ranges(context, inputs))
            blobs = (inputs.before.parameters, *(blob for blob, _ in inputs.answers), *memory)
            if not all(digest is not None and context.blobs.has(digest) for digest in dict.fromkeys(blobs)):
                return Progress.HERE
    if any(row.result is None for row in rows):
        return Progress.WAITING
    if any(row.step for row in rows):
        return Progress.DONE
    clip = move_of(inputs.spec).clip
    sums = [each for row in rows for each in np.frombuffer(context.blobs.read(row.result or Digest("")))]
    clipped = part_merges.clip_factor(sums, clip) if rows and clip is not None else None
    _request_parts(context, job_id, inputs, bool(rows) or clip is None, None if clipped is None else float(clipped))
    return Progress.WAITING


class PartMerger(Merger):
    def takes(self, context: Context, inputs: MergeInputs) -> bool:
        return is_shared(context, inputs)

    def merge(self, context: Context, job_id: str, inputs: MergeInputs) -> MergedRound | float | None:
        progress = request_next_parts(context, job_id, inputs)
        if progress is not Progress.DONE:
            return context.settings.sweep_s if progress is Progress.WAITING else None
        with record_span("join"):
            updated, loss = join_parameters(context, job_id, inputs)
        return MergedRound(
            updated=updated,
            published=None,
            loss=loss,
            again={updated: partial(join_parameters, context, job_id, inputs)},
            parameters=partial(replay.load_parameter_arrays, context, updated),
            memory=partial(join_memory, context, job_id, inputs.number),
        )


def _request_parts(context: Context, job_id: str, inputs: MergeInputs, step: bool, factor: float | None) -> None:
    ranges = (
        _step_ranges(context, inputs)
        if step
        else part_merges.square_ranges(inputs.recipe.layout, _largest_part(context))
    )
    with context.begin() as work:
        job, row = lock_row(work, Job, job_id), work.get_one(Round, (job_id, inputs.number))
        if job.state == JobState.RUNNING and row.state == RoundState.MERGING:
            merge_part_rows.request_parts(work, job_id, inputs.number, step, ranges, factor)
            work.notify(TOPIC)


def _largest_part(context: Context) -> int:
    return context.settings.merge_part // 4


def _step_ranges(context: Context, inputs: MergeInputs) -> list[slice]:
    return part_merges.step_ranges(inputs.recipe.layout, move_of(inputs.spec).optimizer, _largest_part(context))


def _find_memory(reader: RowReader, job_id: str, number: int, part: slice) -> Digest | None:
    """Returns a blob with the optimizer's memory before a round: of this part, or whole; None where none is stored."""
    rows = merge_part_rows.of_round(reader, job_id, number - 1)
    own = (row.memory for row in rows if row.step and (row.start, row.stop) == (part.start, part.stop))
    earlier = reader.get(Round, (job_id, number - 1))
    whole = facts_of(reader.get_one(Job, job_id)).memory if earlier is None else earlier.optimizer_state
    return next(own, None) or whole or None


def compute_part(context: Context, number: int) -> None:
    """Computes a part, unless it is done or not wanted any more.

    A message may come after its job's end, which releases the blobs that the part reads.
    """
    with context.reading() as reader:
        row = reader.get(MergePart, number)
        if row is None or row.result is not None or _is_of_ended_job(reader, row):
            return
        job, merging = reader.get_one(Job, row.job_id), reader.get_one(Round, (row.job_id, row.round))
        inputs, part = replay.inputs_of(reader, job, merging), slice(row.start, row.stop)
        memory = _find_memory(reader, row.job_id, row.round, part) if row.step else None
    done: Done
    try:
        with ExitStack() as stack:
            shards = merged_shards(inputs.recipe, inputs.opened(context.blobs, stack))
            if row.step:
                read = (inputs.before.parameters, memory or Digest(""))
                model, held = (stack.enter_context(context.blobs.mapped(one)) for one in read)
                done = _step_mapped(inputs, row, shards, model, held)
            else:
                done = [part_merges.part_squares(inputs.recipe.layout, shards, part).tobytes()], [], None
    except NotFound:
        # releases all parts, since a blob is missing: one process merges the round, and reports it where it cannot
        with context.begin() as work:
            lock_row(work, Job, row.job_id)
            release_parts(work, row.job_id, context.clock())
            work.notify("aggregate")
        with context.reading() as reader:
            if _is_of_ended_job(reader, row):
                return
        raise
    _store_part(context, row, *done)


def _is_of_ended_job(reader: RowReader, row: MergePart) -> bool:
    """Returns whether the part's job has ended, and logs it."""
    if not jobs.list_ended_jobs(reader, [row.job_id]):
        return False
    log.info("a part of a merge is not done: its job has ended", job=row.job_id, round=row.round)
    return True


Chunks = Sequence[Bytes]
Done = tuple[Chunks, Chunks, float | None]
"""A part's result, memory (none of squares) and loss."""


def _step_mapped(inputs: MergeInputs, row: MergePart, shards: Shards, model: Bytes, held: Bytes) -> Done:
    """Returns the step's result; no view of a mapped file outlives the call, or it could not be closed."""
    layout, part, move = inputs.recipe.layout, slice(row.start, row.stop), move_of(inputs.spec)
    before = part_merges.cut_out(layout, part, tensors.view_tensors(memoryview(model)))
    memory = part_merges.cut_out(layout, part, tensors.view_tensors(memoryview(held)), prefixed=True)
    factor = None if row.factor is None else np.float32(row.factor)
    after, kept, loss = part_merges.step_part(
        layout, shards, part, before, memory, move, inputs.spec.rate_in(inputs.number), factor
    )
    return tensors.pack_in_chunks(after), tensors.pack_in_chunks(kept), None if np.isnan(loss) else loss


def _store_part(context: Context, row: MergePart, result: Chunks, memory: Chunks, loss: float | None) -> None:
    """Stores a part's result and memory, for the next step."""
    stored = {_store_blob(context, chunks, row.job_id): chunks for chunks in (result, memory) if chunks}
    names = list(stored)
    with context.begin() as work:
        lock_row(work, Job, row.job_id)
        blob_cleanup.lock_and_restore_blobs(
            context, work, {one: partial(_store_blob, context, data) for one, data in stored.items()}
        )
        merge_part_rows.store_result(work, row.id, names[0], names[-1] if memory else None, loss)
        rows = merge_part_rows.of_round(work, row.job_id, row.round)
        work.notify("aggregate" if all(each.result is not None for each in rows) else TOPIC)


def _store_blob(context: Context, chunks: Chunks, of_job: str = "") -> Digest:
    """Stores a blob that a job releases before it is stored: the leftovers of a killed process are dropped."""
    with context.blobs.receive() as incoming:
        for chunk in chunks:
            incoming.write(chunk)
        if of_job:
            with context.begin() as work:
                unneeded.release_blobs(work, of_job, PART, [incoming.digest], context.clock())
        return context.blobs.store_blob(incoming)


def join_parameters(context: Context, job_id: str, inputs: MergeInputs) -> tuple[Digest, float]:
    """Stores the parameters after a merge whose parts are done; returns their digest, and the merged loss."""
    with context.reading() as reader:
        rows = merge_part_rows.steps_of(reader, job_id, inputs.number)
    loss = math.nan if rows[0].loss is None else rows[0].loss
    parts = [row.result or Digest("") for row in rows]
    return _join_files(context, inputs.before.parameters, parts, inputs.counters, memory=False), loss


def join_memory(context: Context, job_id: str, number: int) -> Digest:
    """Stores the optimizer's memory after a merge, as one process does."""
    with context.reading() as reader:
        like = facts_of(reader.get_one(Job, job_id)).memory
        rows = merge_part_rows.steps_of(reader, job_id, number)
    return _join_files(context, like, [row.memory or Digest("") for row in rows], (), memory=True)


def _join_files(context: Context, like: Digest, parts: list[Digest], counters: tuple[str, ...], memory: bool) -> Digest:
    """Stores a file whose arrays lie as in `like`: from the parts, else from `like`; counters count one more."""
    with ExitStack() as stack:
        model, *files = (stack.enter_context(context.blobs.mapped(digest)) for digest in (like, *parts))
        # where the parts of each array are; of arrays that all parameters share, the first file's alone
        pieces = dict[str, list[tuple[Bytes, slice]]]()
        for file in files:
            for name, place in tensors.locate_tensors(file).items():
                if name not in pieces or not memory or part_merges.parse_memory_owner(name):
                    pieces.setdefault(name, []).append((file, place))
        # no view of a mapped file outlives its expression, or the file could not be closed
        more = {name: increase_counter(name, tensors.view_tensors(memoryview(model))).tobytes() for name in counters}
        places = tensors.locate_tensors(model)
        incoming = stack.enter_context(context.blobs.receive())
        incoming.write(model[: min((place.start for place in places.values()), default=len(model))])
        for name, place in places.items():
            for file, part in pieces.get(name, [(model, place)]):
                with memoryview(more[name] if name in more else memoryview(file)[part]) as view:
                    incoming.write(view)
        return context.blobs.store_blob(incoming)


def release_parts(work: Work, job_id: str, now: float, since: int = 0, until: int | None = None) -> None:
    """Deletes the parts of these rounds and releases their blobs."""
    unneeded.release_blobs(work, job_id, PART, merge_part_rows.delete_parts(work, job_id, since, until), now)


def release_merged_parts(work: Work, job_id: str, number: int, in_parts: bool, now: float) -> None:
    """Releases, in the transaction that closes a round, all blobs but the memory, which the next merge needs."""
    release_parts(work, job_id, now, until=number if in_parts else number + 1)
    if in_parts:
        unneeded.release_blobs(work, job_id, PART, merge_part_rows.mark_joined(work, job_id, number), now)


# The stage: a row without a result is the request.

CALLED: Final = f"{TOPIC} "


def ready(reader: RowReader, _now: float) -> Sequence[str]:
    return merge_part_rows.find_requested(reader, CALLED)


def run(context: Context, row_id: str) -> float | None:
    with hold_named_lock(context.sessions, CALLED + row_id) as mine:
        if not mine:
            return context.settings.sweep_s
        with context.reading() as reader:
            job_id = merge_part_rows.job_of(reader, int(row_id))
        if job_id is not None:
            # a missing blob is no failure yet: one process merges the round then, and reports it
            with faults.report_merge_failure(context, job_id, but=NotFound):
                compute_part(context, int(row_id))
    return None
