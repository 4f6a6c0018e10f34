"""Runs a task: in one piece, or window by window with a commitment to the state between them (features.windows)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from secrets import token_bytes

import numpy as np

from gradmarket.compute.held_rows import StepCorrection
from gradmarket.market.errors import Refused
from gradmarket.market.gradient import inspection
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.codecs import Codec, load_codec
from gradmarket.market.gradient.payload import encode_payload, read_tensors
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.sampling import layout_in
from gradmarket.market.step import GradientStep, LocalStep, Step, WindowStep, cut_windows
from gradmarket.market.terms import Digest, Hash
from gradmarket.market.wire.poll import digest_of, hash_of
from gradmarket.runner import DocumentInfo, window_state
from gradmarket.runner.drawn_rows import prefix_corrections
from gradmarket.runner.window_state import State
from graphdoc.encoding import Bytes

Compute = Callable[[Arrays, Arrays, bytes, Step], dict[str, np.ndarray]]
"""(state, batch, seed, step) -> the arrays of runner.compute."""
Answered = tuple[Mapping[str, np.ndarray], Sequence[Hash]]
"""The tensors of an answer, and its leaves."""


@dataclass(frozen=True)
class Windowed:
    """When a machine last committed to states, in Unix time, and how long an audit waits for one, in seconds."""

    at: float
    waits_s: float = 0.0


def layout_of(publication: Publication, info: DocumentInfo) -> Layout:
    """Returns the layout of the job's payloads."""
    return layout_in(publication.spec, info.layout)


def payload_of(spec: JobSpec, task: "TaskRun", tensors: Mapping[str, np.ndarray], leaves: Sequence[Hash]) -> Bytes:
    """Returns the payload of an answer; a holder's own is kept within the job's bounds. Raises Refused as `bounded`."""
    packed = load_codec(spec.uplink.codec)
    if not spec.repeatable:
        payload = inspection.encode_bounded_payload(task.layout, tensors, packed, task.seed, leaves, spec.norm_bound)
        task.store_sent_answer(payload, packed)
        return payload
    return encode_payload(task.layout, tensors, packed, task.seed, leaves)


@dataclass(frozen=True)
class TaskRun:
    """One task and its runner: `state` is the round's parameters, `batch` all of the task's rows."""

    compute: Compute
    layout: Layout
    step: GradientStep | LocalStep
    state: Arrays
    batch: Arrays
    seed: bytes
    control: StepCorrection | None = None
    drawn: Arrays = field(default_factory=dict)
    """Number of rows that each step drew at random (runner.drawn_rows); empty where steps draw none."""

    @cached_property
    def correction(self) -> Arrays:
        """The correction added to each inner gradient; empty where the job has no control variates."""
        return {} if self.control is None else self.control.correction(self.state, self._trained)

    def store_sent_answer(self, payload: Bytes, packed: Codec) -> None:
        """Stores the part of an answer from which the next round's correction is computed."""
        if self.control is not None:
            tensors = read_tensors(self.layout, payload, packed, self.seed)
            change = {name: np.array(tensor) for name, tensor in tensors if name in self._trained}
            self.control.answered(self.state, self.correction, change)

    @property
    def _trained(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.layout.of("gradient"))

    def whole(self, keep: Callable[[Digest, bytes], object]) -> Answered:
        """Returns the answer; `keep` gets the bytes of each state that it commits to. Raises as `compute` does.

        Noise by row is drawn under a secret new seed each time, in place of the offer's: nobody can draw it again.
        """
        if self.step.leaves == 0 or not isinstance(self.step, LocalStep):
            seed = token_bytes(32) if self.step.by_row else self.seed
            state = {**self.state, **prefix_corrections(self.correction), **self.drawn}
            return self.compute(state, self.batch, seed, self.step), ()
        step, leaves = self.step, list[Hash]()
        first = state = window_state.build_start_state(self.layout, self.state, step)
        for part in self._cut_windows(step):
            if part.start:
                packed = window_state.pack_state(state)
                leaves.append(window_state.compute_leaf(packed))
                keep(digest_of(leaves[-1]), packed)
            state = self._run_window(step, state, part)
        return window_state.build_task_answer(self.layout, first, state), leaves

    def state_at(self, wanted: Digest) -> bytes:
        """Returns the bytes of the state with this digest, computed anew. Raises Refused if the task has none."""
        if isinstance(self.step, LocalStep) and self.step.leaves:
            state = window_state.build_start_state(self.layout, self.state, self.step)
            for part in self._cut_windows(self.step)[:-1]:
                state = self._run_window(self.step, state, part)
                packed = window_state.pack_state(state)
                if digest_of(window_state.compute_leaf(packed)) == wanted:
                    return packed
        raise Refused(f"the task has no state {wanted}")

    def replay(self, window: int, leaves: Sequence[Digest | None], fetch: Callable[[Digest], Bytes]) -> Answered:
        """Returns the answer as far as window `window` and the last one decide it; the rest are the given leaves.

        Their first states come from `fetch`; the leaf at the drawn window's end is this run's own. Raises Refused where
        the step has no such window or a leaf is missing, TensorsRefused where a state is malformed, and as `compute`.
        """
        step = self.step
        if not isinstance(step, LocalStep) or len(leaves) != step.leaves or not 0 <= window < step.leaves:
            raise Refused(f"the task has no window {window} of {len(leaves) + 1}")
        parts, first = self._cut_windows(step), window_state.build_start_state(self.layout, self.state, step)

        def state_at(number: int) -> State:
            digest = leaves[number - 1]
            if digest is None:
                raise Refused(f"there is no leaf for window {number}")
            return window_state.unpack_state(fetch(digest), self.layout, step, parts[number].start)

        state = self._run_window(step, state_at(window) if window else first, parts[window])
        own = window_state.compute_leaf(window_state.pack_state(state))
        last = state if window + 1 == step.leaves else state_at(step.leaves)
        ended = self._run_window(step, last, parts[-1])
        others = {number: hash_of(leaf) for number, leaf in enumerate(leaves) if leaf is not None}
        all_leaves = [own if number == window else others[number] for number in range(step.leaves)]
        return window_state.build_task_answer(self.layout, first, ended), all_leaves

    def _cut_windows(self, step: LocalStep) -> tuple[range, ...]:
        return cut_windows(step.steps, step.window or step.steps)

    def _run_window(self, step: LocalStep, before: State, part: range) -> State:
        rows = slice(part.start * step.rows, part.stop * step.rows)
        batch = {name: np.ascontiguousarray(array[rows]) for name, array in self.batch.items()}
        after = self.compute({**self.state, **before}, batch, self.seed, WindowStep.of(step, part))
        return window_state.join_states(self.layout, before, after)
