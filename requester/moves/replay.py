"""A job's model and optimizer state before a round: cached by this process, or replayed.

The state is a pure function of the accepted payloads. A snapshot of the optimizer's state is stored only now and then;
the rounds since are merged again from their payloads, and must give the parameters that were published.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from mmap import MADV_DONTNEED, mmap
from typing import Final

from blake3 import blake3

from gradmarket.market.admissible import move_of
from gradmarket.market.errors import Conflict
from gradmarket.market.gradient.aggregators import configure_aggregator
from gradmarket.market.gradient.arrays import Arrays, Vector
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.noise import Noise
from gradmarket.market.gradient.published_update import UpdateDraft, update_bytes
from gradmarket.market.gradient.round_merge import MergedAnswer, Recipe, merged_shards
from gradmarket.market.gradient.round_update import advance_model
from gradmarket.market.gradient.shards import Lanes, Shards
from gradmarket.market.job import JobSpec
from gradmarket.market.terms import Digest, digest_text, domain_hash
from gradmarket.market.wire.poll import hash_of
from requester.blobs import Blobs
from requester.context import Context
from requester.live_states import Image, LiveState, Version, load_live_state
from requester.store import jobs, merges
from requester.store.answer_kind import answer_kind_of
from requester.store.facts import facts_of, layout_of
from requester.store.tables import Job, Round, Task
from requester.store.work import RowReader

LANES: Final = min(4, os.cpu_count() or 1)
"""Threads that merge shards side by side."""
STORED_BESIDE: Final = 1 << 26
"""Most bytes of parameters that reach the disk while the transaction that names them runs."""


@dataclass(frozen=True)
class MergeInputs:
    """The inputs of one merge. `answers` are pairs (payload blob, task seed); `scales` as MergedAnswer has them."""

    before: Version
    spec: JobSpec
    recipe: Recipe
    counters: tuple[str, ...]
    answers: tuple[tuple[Digest, bytes], ...]
    scales: tuple[float, ...]

    @property
    def number(self) -> int:
        return self.before.round

    def opened(self, blobs: Blobs, stack: ExitStack) -> list[MergedAnswer]:
        """Maps the answers into memory until `stack` ends."""
        pairs = zip(self.answers, self.scales, strict=True)
        return [MergedAnswer(stack.enter_context(blobs.mapped(blob)), seed, scale) for (blob, seed), scale in pairs]


@dataclass(frozen=True)
class MergedRound:
    """The result of a merge: the parameters to evaluate, and by digest a function that stores each blob again."""

    updated: Digest
    published: Digest | None
    loss: float
    again: Mapping[Digest, Callable[[], object]]
    parameters: Callable[[], Arrays]
    stored: Future[Digest] | None = None
    """Done once the parameters are durable; None where they are."""
    memory: Callable[[], Digest] | None = None
    """Stores the optimizer's memory after the merge; None where the process that closes the round has that memory."""

    def wait_until_durable(self) -> None:
        """Raises OSError where the parameters cannot be stored."""
        if self.stored is not None:
            self.stored.result()


def build_recipe(spec: JobSpec, job: Job) -> Recipe:
    chosen = spec.aggregator
    rule, settings = configure_aggregator(chosen.name, chosen.settings, spec.tasks_needed, spec.sizes.most)
    return Recipe(layout_of(job), load_codec(spec.uplink.codec), rule, settings, spec.norm_bound, spec.sizes.most)


def inputs_of(reader: RowReader, job: Job, row: Round, used: Sequence[Task] | None = None) -> MergeInputs:
    """Returns the inputs of a round's merge; `used`: the tasks whose answers are merged, if the caller has them."""
    spec, tasks = jobs.load_spec(job), merges.used_tasks(reader, job.id, row.number) if used is None else used
    if spec.secure is not None:
        tasks = tasks[:1]  # all have one payload, the mean (store.round_sum)
    answers = tuple((task.payload or Digest(""), task.offer.seed) for task in tasks)
    noise = None
    if spec.privacy is not None and spec.secure is None:  # with secure sums the holders have added it
        # Its seed never leaves the service: it would allow to remove the noise. Other answers get other noise: after a
        # restored backup the round is computed again, and the difference of two models with the same noise has none.
        blobs = sorted(blob for blob, _ in answers)
        seed = domain_hash("noise", job.secret, row.number.to_bytes(8, "big"), *map(str.encode, blobs))
        noise = Noise(spec.privacy.noise_multiplier * spec.norm_bound, seed)
    return MergeInputs(
        before=_build_version(reader, row),
        spec=spec,
        recipe=replace(build_recipe(spec, job), noise=noise),
        counters=facts_of(job).counters,
        answers=answers,
        scales=answer_kind_of(reader, job).compute_merge_weights(reader, job, tasks),
    )


def _build_version(reader: RowReader, row: Round) -> Version:
    """Returns the version that a merge changes: the newest parameters, which with an overlap no task of
    it starts from.
    """
    earlier = reader.get(Round, (row.job_id, row.number - 1))
    if earlier is None:
        return Version(row.number, Digest(row.parameters), None)
    return Version(row.number, Digest(earlier.updated or ""), earlier.closed_at)


def state_before(context: Context, job_id: str, before: Version) -> LiveState:
    """Returns the job's state before a round. Raises NotFound for a missing blob, Conflict as `_replay_rounds` does."""
    live = context.states.take(job_id)
    if live is not None and live.version == before:
        return live
    with context.reading() as reader:
        job = reader.get_one(Job, job_id)
        stored = merges.newest_snapshot(reader, job_id, before.round)
        start, memory = (stored.number, Digest(stored.optimizer_state)) if stored else (-1, facts_of(job).memory)
        rows = merges.closed_between(reader, job_id, start, before.round)
        versions = [*(_build_version(reader, row) for row in rows), before]
        done = versions.index(live.version) if live is not None and live.version in versions else 0
        rounds = [inputs_of(reader, job, row) for row in rows[done:]]
    if not done or live is None:
        live = None  # else both would be in memory
        version = versions[0]
        limit, folder = context.settings.merge_memory, context.settings.data
        with context.blobs.mapped(version.parameters) as model, context.blobs.mapped(memory) as held:
            context.states.make_room(2 * len(model) + len(held), limit)
            live = load_live_state(model, held, version, start, limit, folder)
    for inputs, version in zip(rounds, versions[done + 1 :], strict=True):
        merge_round(context.blobs, inputs, live)
        replayed = digest_of(live.parameters)
        if replayed != version.parameters:
            raise Conflict(f"round {inputs.number} merged again gives {replayed}, not {version.parameters}")
        live.version = version
    return live


def merge_round(blobs: Blobs, inputs: MergeInputs, state: LiveState) -> float:
    """Moves the state past a round; returns the mean loss that its tasks measured. If this raises, drop the state.

    `state.update` then has the update that the round publishes, in a job with a downlink.
    """
    lr = inputs.spec.rate_in(inputs.number)
    with ExitStack() as stack:
        answers = inputs.opened(blobs, stack)
        shards = _release_after_shards(state, answers, merged_shards(inputs.recipe, answers))
        before, after, memory = state.parameters.arrays, state.spare.arrays, state.memory.arrays
        layout, move = inputs.recipe.layout, move_of(inputs.spec, inputs.number)
        lanes = Lanes(LANES, stack.enter_context(ThreadPoolExecutor(LANES)).map)
        draft = None
        if move.downlink is not None:
            room = state.make_update_room(update_bytes(layout, move.downlink))
            draft = UpdateDraft(move.downlink, room, hash_of(inputs.before.parameters))
        loss = advance_model(layout, before, after, memory, shards, move, lr, inputs.counters, lanes, draft)
    state.swap_images()
    return loss


def _release_after_shards(state: LiveState, answers: Sequence[MergedAnswer], shards: Shards) -> Shards:
    """Releases the pages that a state in files has used, after each shard: memory stays at a few shards."""
    if not state.mapped:
        return shards

    def released(indices: Sequence[int]) -> Iterator[Vector]:
        for shard in shards.merged(indices):
            yield shard
            state.release()
            for answer in answers:
                if isinstance(answer.data, mmap):
                    answer.data.madvise(MADV_DONTNEED)

    return Shards(released, shards.alone)


def digest_of(image: Image) -> Digest:
    hasher = blake3()
    for block in image.iterate_blocks():
        hasher.update(block)
    return digest_text(hasher)


def store_image(blobs: Blobs, image: Image, hashed: Future[Digest] | None = None) -> Digest:
    """Stores an image's bytes as a blob; `hashed` gets their digest before they are durable."""
    with blobs.receive() as incoming:
        for block in image.iterate_blocks():
            incoming.write(block)
        if hashed is not None:
            hashed.set_result(incoming.digest)
        return blobs.store_blob(incoming)


def store_image_beside(beside: Executor, blobs: Blobs, image: Image) -> tuple[Digest, Future[Digest]]:
    """Returns the digest, and the future of the blob; one past the service or of a large file is durable at once."""
    digest = Future[Digest]()
    stored = beside.submit(store_image, blobs, image, digest)
    wait([digest, stored], return_when=FIRST_COMPLETED)
    if blobs.reached_past_us or image.length > STORED_BESIDE or not digest.done():
        return stored.result(), stored
    return digest.result(), stored


def load_parameter_arrays(context: Context, parameters: Digest) -> Arrays:
    """Returns a blob's arrays, copied into memory, or into a file that is mapped where they are large."""
    with context.blobs.mapped(parameters) as data:
        return Image.of(data, context.settings.data if len(data) > context.settings.merge_memory else None).arrays
