"""Computes an offer's payload: fetches the publication by digest, runs the step, and encodes the result."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from gradmarket.compute.cache import Cache
from gradmarket.compute.fetch import Fetcher
from gradmarket.compute.held_rows import HeldRows
from gradmarket.compute.machine import Effort, MachineLimits, Unfit, find_device_unfit, too_heavy
from gradmarket.compute.partitions import Partitions, select_rows
from gradmarket.compute.prefetch import Prefetch
from gradmarket.compute.published import fetch_parameters
from gradmarket.compute.task_run import Answered, Compute, TaskRun, Windowed, layout_of, payload_of
from gradmarket.market.errors import Refused
from gradmarket.market.gradient.arrays import Arrays, Tensors
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.inspection import Diverged, Usable, inspect_shards
from gradmarket.market.gradient.payload import decode_shards, read_tensors
from gradmarket.market.gradient.projection import Sketch
from gradmarket.market.job import Publication
from gradmarket.market.messages import Offer
from gradmarket.market.rules import sketch_packing
from gradmarket.market.sampling import other_rows
from gradmarket.market.terms import Digest, Hash
from gradmarket.market.wire.poll import digest_of
from gradmarket.network import DownloadRefused
from gradmarket.runner import DocumentInfo, Runner
from gradmarket.runner.market_runner import TaskInputs
from gradmarket.runner.task_cost import compute_task_cost
from graphdoc.cost import Cost
from graphdoc.encoding import Bytes
from graphdoc.tensors import unpack_tensors
from graphdoc.values import Outside, find_misfit

STATES_KEPT: Final = 2
"""Kept unpacked, those prefetched included."""
JOBS_KEPT: Final = 16
"""Jobs whose document facts are cached: as many as may have a warm child (graphdoc.runner.children)."""


class Executor:
    """Computes payloads, sketches and losses. `compute` is the runner's function, or a wrapper around it.

    `window_states` keeps the states that answers commit to, as far as it has room.
    """

    def __init__(
        self,
        runner: Runner,
        fetcher: Fetcher,
        limits: MachineLimits,
        compute: Compute | None = None,
        window_states: Cache | None = None,
        own: HeldRows | None = None,
    ) -> None:
        self._runner = runner
        self._fetcher = fetcher
        self._limits = limits
        self._compute = compute or runner.compute
        self._packs_there = compute is None and limits.device != "cpu"
        """Answers are packed on the card: only bytes leave it."""
        self._borne: dict[Digest, DocumentInfo] = {}
        """Publications whose step is within this machine's limits, the newest last: a worker goes from job to job."""
        self._window_states = window_states
        self.windowed = Windowed(0.0 if window_states is None else window_states.newest)
        self._partitions = Partitions(runner, fetcher, own)
        self._states: Prefetch[Arrays] = Prefetch(STATES_KEPT)
        self._alone = runner.alone
        """Held to load a document and then compute with it: a lease is computed in another thread."""

    def work(self, publication: Publication, offer: Offer) -> tuple[Bytes, float]:
        """Returns the payload, and the seconds that the step took. Raises PartitionUnfit, DownloadFailed, RunnerFailed.

        Raises Refused if the publication is malformed, or too heavy for this machine.
        """
        codec, step = publication.spec.uplink.codec, publication.spec.step
        if self._packs_there and publication.spec.repeatable and not step.leaves:
            return self._run_task(
                publication,
                offer,
                lambda task: self._runner.compute_payload(
                    task.state, task.batch, task.seed, task.step, codec, digest_of(offer.parameters)
                ),
            )
        answered = self._run_task(publication, offer, lambda task: task.whole(self._store_window_state))
        if step.leaves:
            self.windowed = Windowed(time.time(), offer.lease_seconds + offer.upload_seconds)
        return answered

    def replay(
        self, publication: Publication, offer: Offer, window: int, leaves: Sequence[Digest | None]
    ) -> tuple[Bytes, float]:
        """Returns the result of `work` from two windows of the task alone (TaskRun.replay). Raises as `work` does."""
        return self._run_task(publication, offer, lambda task: task.replay(window, leaves, self._fetcher.blob))

    def window_state(self, publication: Publication, offer: Offer, digest: Digest) -> Bytes:
        """Returns a state that an answer commits to: as it was kept, or computed anew.

        Raises Refused if the task has no such state, and as `work` does.
        """
        kept = None if self._window_states is None else self._window_states.read(digest)
        if kept is not None:
            return kept
        with self._alone:
            return self._build_task_run(publication, offer).state_at(digest)

    def _run_task(
        self, publication: Publication, offer: Offer, run: Callable[[TaskRun], Answered | Bytes]
    ) -> tuple[Bytes, float]:
        with self._alone:
            task = self._build_task_run(publication, offer)
            self._partitions.look_ahead(publication, offer)
            started = time.perf_counter()
            answer = run(task)
            seconds = time.perf_counter() - started
        return payload_of(publication.spec, task, *answer) if isinstance(answer, tuple) else answer, seconds

    def _build_task_run(self, publication: Publication, offer: Offer) -> TaskRun:
        info = self._load_document(publication)
        state = self._load_parameters(publication, offer.round, digest_of(offer.parameters), info)
        batch, drawn = self._partitions.batch(publication, offer.round, offer.task)
        step = publication.spec.step_in(offer.round)
        control = self._partitions.control(publication, offer.round)
        return TaskRun(self._compute, layout_of(publication, info), step, state, batch, offer.seed, control, drawn)

    def inputs_of(self, publication: Publication, offer: Offer) -> TaskInputs:
        """Returns the task's inputs for a tracing child. Raises as `work` does."""
        with self._alone:
            info = self._load_document(publication)
            state = self._load_parameters(publication, offer.round, digest_of(offer.parameters), info)
            batch, _ = self._partitions.batch(publication, offer.round, offer.task)
            rows = self._partitions.rows(publication, offer.round, offer.task)
        codec = publication.spec.uplink.codec
        return TaskInputs(rows, state, batch, offer.seed, publication.spec.step_in(offer.round), codec)

    def _store_window_state(self, digest: Digest, state: Bytes) -> None:
        if self._window_states is not None:
            self._window_states.put(digest, state)

    def bad_row(self, publication: Publication, offer: Offer) -> tuple[str, Outside | None]:
        """Returns the task's partition and the first of its values that the model does not accept.

        Raises as `work` does.
        """
        with self._alone:
            self._load_document(publication)
            partition, arrays = self._partitions.of_task(publication, offer.round, offer.task)
            rows = self._partitions.rows(publication, offer.round, offer.task)
            bad = find_misfit(select_rows(arrays, rows), self._runner.ranges(publication.spec.step.pass_rows))
        return partition.name, None if bad is None else replace(bad, row=rows[bad.row])

    def sketch(self, publication: Publication, offer: Offer, payload: Bytes, seed: Hash) -> Sketch:
        """Returns the sketch of a payload for this offer, under a wave's seed or an audit's. Raises as `work` does."""
        packed = load_codec(publication.spec.uplink.codec)
        return sketch_packing.of_payload(
            layout_of(publication, self._load_without_waiting(publication)), payload, packed, offer.seed, seed
        )

    def draws(self, publication: Publication, offer: Offer, seed: Hash, others: int) -> tuple[Arrays, list[Arrays]]:
        """Returns the offer's parameters, its task's rows, and `others` draws of as many other rows.

        Raises as `work` does.
        """
        info = self._load_document(publication)
        partition, arrays = self._partitions.of_task(publication, offer.round, offer.task)
        own = self._partitions.rows(publication, offer.round, offer.task)
        draws = [own, *other_rows(own, partition.rows, others, seed)]
        state = self._load_parameters(publication, offer.round, digest_of(offer.parameters), info)
        return state, [select_rows(arrays, rows) for rows in draws]

    def loss(self, publication: Publication, state: Arrays, batch: Arrays) -> float:
        """Returns the mean loss at `state`, computed in passes of the step's size. Raises as `work` does."""
        self._runner.turn(publication.digest)
        document, size = self._fetcher.fetch_described(publication.document), publication.spec.step.pass_rows
        rows = len(next(iter(batch.values())))
        parts = [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
        cuts = [{name: array[part] for name, array in batch.items()} for part in parts]
        losses = [self._runner.evaluate(document, state, cut).loss for cut in cuts]
        return math.fsum(loss * (part.stop - part.start) / rows for loss, part in zip(losses, parts, strict=True))

    def gradient(self, publication: Publication, offer: Offer, payload: Bytes) -> Tensors:
        """Returns the gradients in a payload for this offer. Raises PayloadRefused, and otherwise as `work` does."""
        layout, packed = (
            layout_of(publication, self._load_document(publication)),
            load_codec(publication.spec.uplink.codec),
        )
        names = {entry.name for entry in layout.of("gradient")}
        return {name: tensor for name, tensor in read_tensors(layout, payload, packed, offer.seed) if name in names}

    def inspect(self, publication: Publication, offer: Offer, payload: Bytes) -> Usable | Diverged:
        """Returns whether a payload for this offer is within the job's bounds. Raises as `gradient` does."""
        layout = layout_of(publication, self._load_document(publication))
        packed = load_codec(publication.spec.uplink.codec)
        return inspect_shards(layout, decode_shards(layout, payload, packed, offer.seed), publication.spec.norm_bound)

    def expect(self, publication: Publication, offer: Offer) -> None:
        """Prefetches the task's blobs; errors are raised when the task is computed."""
        info = self._borne.get(publication.digest)
        if info is None:
            return
        self._partitions.expect(publication, publication.spec.place(offer.round, offer.task))
        digest = digest_of(offer.parameters)
        self._states.expect(digest, lambda: self._unpack_parameters(publication, offer.round, digest, info))

    def time_trial_step(self, publication: Publication) -> float:
        """Returns the seconds of one step on the first task's rows, the better of two runs; used for estimates.

        It computes on zeros where the market serves the parameters only to workers that hold a task.
        """
        seconds = []
        with self._alone:
            info = self._load_document(publication)
            try:
                state = self._load_parameters(publication, 0, publication.parameters, info)
            except DownloadRefused:
                state = {name: np.zeros(shape, dtype) for name, (shape, dtype) in info.document.state.items()}
            batch, drawn = self._partitions.batch(publication, 0, 0, counts=False)
            for _ in range(2):
                started = time.perf_counter()
                self._runner.compute({**state, **drawn}, batch, bytes(32), publication.spec.step)
                seconds.append(time.perf_counter() - started)
        return min(seconds)

    def check_task_fits(self, publication: Publication) -> None:
        """Fetches document and manifest. Raises Refused if a task is too heavy here, or its rows spent; as `work`."""
        self._load_without_waiting(publication)
        self._partitions.afford(publication)

    def effort(self, publication: Publication) -> Effort:
        """Returns the cost of one task on this machine, measured on its first rows."""
        with self._alone:
            seconds = self.time_trial_step(publication)
            return Effort(self._compute_cost(publication, self._load_document(publication)).operations, seconds)

    def _compute_cost(self, publication: Publication, info: DocumentInfo) -> Cost:
        step = publication.spec.step
        return compute_task_cost(info.document, self._runner.bound(*step.pass_sizes, by_row=step.by_row), step)

    def _load_without_waiting(self, publication: Publication) -> DocumentInfo:
        """Returns the result of `_load`, without waiting for a running step if the document was loaded before."""
        if (info := self._borne.get(publication.digest)) is not None:
            return info
        with self._alone:
            return self._load_document(publication)

    def _load_document(self, publication: Publication) -> DocumentInfo:
        """Loads the document, unless it is the last one, and checks once that this machine can run the job's step."""
        self._runner.turn(publication.digest)
        info = self._borne.pop(publication.digest, None)
        if info is None or self._runner.current != publication.document:
            loaded = DocumentInfo.of(self._runner.load(self._fetcher.fetch_described(publication.document)))
            if info is None:
                self._check_limits(publication, loaded)
            info = loaded
        self._borne[publication.digest] = info
        for old in list(self._borne)[:-JOBS_KEPT]:
            del self._borne[old]
        return info

    def _check_limits(self, publication: Publication, info: DocumentInfo) -> None:
        """Raises Refused over the limits. Fetches only document and manifest: parameters and partitions are large."""
        task = self._compute_cost(publication, info)
        heavy = too_heavy(task.operations, task.memory, self._limits)
        if heavy is not None:
            takes = f"{task.operations:.3g} operations, {task.memory / 2**20:.0f} MiB of memory"
            here = f"{self._limits.max_flops:.3g} and {self._limits.max_memory / 2**20:.0f} MiB"
            raise Refused(f"{heavy}: it takes {takes}; this worker allows {here}")
        differing = find_device_unfit(task.only_on_cpu, self._limits)
        if differing is not None:
            raise Refused(f"{differing}: {task.only_on_cpu}")
        download = task.state + self._partitions.largest(publication)
        if download > self._limits.max_disk:
            raise Refused(f"{Unfit.TOO_MANY_BYTES}: {download} of {self._limits.max_disk}")

    def _load_parameters(self, publication: Publication, number: int, digest: Digest, info: DocumentInfo) -> Arrays:
        """Returns the parameters from which the tasks of round `number` start."""
        return self._states.take(digest, lambda: self._unpack_parameters(publication, number, digest, info))

    def _unpack_parameters(self, publication: Publication, number: int, digest: Digest, info: DocumentInfo) -> Arrays:
        return unpack_tensors(fetch_parameters(self._fetcher, publication, number, digest, info), info.document.state)
