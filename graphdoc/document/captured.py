"""A pass that is recorded once for a shape and replayed from then on: on a card, hundreds of kernels by one call.

A recording has inputs and results of its own, at fixed places. It is used only where its replay has the bits of the
plain pass that it was recorded after; where recording fails, or memory is short, passes stay plain. Random draws read
their key words from a tensor, which has those of the pass's seed before each replay and zeros while it is recorded: a
recording that kept a draw would have other bits than the plain pass.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from graphdoc.document.index_watch import collect_flags, get_active_watch
from graphdoc.document.randomness import RecordedKeys, Seed
from graphdoc.errors import GraphdocError, OutOfMemory

Tensors = dict[str, Tensor]
Pass = Callable[[Tensors, Tensors, Seed], Tensors]
"""(state, data, seed) -> results by name."""
Record = Callable[[Callable[[], Tensors]], tuple[Tensors, Callable[[], None]]]
"""Records a computation; returns its results, and a function that recomputes them in place from the current inputs."""
FIRST: Final = 3
"""Passes of one shape after which it is recorded: a single task is over before a recording pays."""
KEPT: Final = 2
"""Shapes whose recordings are kept: a task has two, that of its microbatches and that of the last."""


@dataclass(frozen=True)
class _Recording:
    state: Tensors
    data: Tensors
    keys: RecordedKeys
    results: Tensors
    replay: Callable[[], None]
    reports: list[str]
    flags: Tensor | None

    def compute(self, state: Mapping[str, Tensor], data: Mapping[str, Tensor], seed: bytes) -> Tensors:
        """Returns copies of the results for these inputs."""
        self.keys.set_seed(seed)
        for own, given in ((self.state, state), (self.data, data)):
            for name, tensor in own.items():
                tensor.copy_(given[name])
        self.replay()
        watch = get_active_watch()
        if watch is not None and self.flags is not None:
            watch.add(self.reports, self.flags.clone())
        return {name: tensor.clone() for name, tensor in self.results.items()}


class CapturedPasses:
    """The recordings of one program. `has_room` returns whether memory for a recording is free."""

    def __init__(self, record: Record, has_room: Callable[[], bool]) -> None:
        self._record, self._has_room = record, has_room
        self._passes: dict[tuple[Any, ...], int] = {}
        self._recordings: dict[tuple[Any, ...], _Recording | None] = {}
        self.replays = 0

    def compute(self, plain: Pass, state: Tensors, data: Tensors, seed: bytes) -> Tensors:
        """Returns the results of `plain` for these inputs, by a recording where there is one."""
        key = tuple((name, tensor.shape, tensor.dtype) for name, tensor in data.items())
        recording = self._recordings.get(key)
        if recording is not None:
            self.replays += 1
            return recording.compute(state, data, seed)
        found = self._compute_plain(plain, state, data, seed)
        self._passes[key] = self._passes.get(key, 0) + 1
        if key not in self._recordings and self._passes[key] == FIRST and len(self._recordings) < KEPT:
            self._recordings[key] = self._try_recording(plain, (state, data, seed), found)
        return found

    def clear(self) -> None:
        """Frees the recordings' memory; they are made anew."""
        self._recordings.clear()
        self._passes.clear()

    def _compute_plain(self, plain: Pass, state: Tensors, data: Tensors, seed: bytes) -> Tensors:
        try:
            return plain(state, data, seed)
        except OutOfMemory:
            if not any(self._recordings.values()):
                raise
            self._recordings = dict.fromkeys(self._recordings)
        return plain(state, data, seed)

    def _try_recording(self, plain: Pass, given: tuple[Tensors, Tensors, bytes], wanted: Tensors) -> _Recording | None:
        """Returns a recording whose replay has these results to the bit; None where none has."""
        if not self._has_room():
            return None
        try:
            made = self._make_recording(plain, *given[:2])
            found = made.compute(*given)
        except (GraphdocError, RuntimeError):
            return None
        same = found.keys() == wanted.keys() and all(_are_same_bits(found[name], wanted[name]) for name in wanted)
        return made if same else None

    def _make_recording(self, plain: Pass, state: Tensors, data: Tensors) -> _Recording:
        own_state, own_data = ({name: tensor.clone() for name, tensor in each.items()} for each in (state, data))
        keys = RecordedKeys(next(iter(data.values())).device)
        with collect_flags() as watch:
            flags: list[Tensor | None] = []

            def compute() -> Tensors:
                results = plain(own_state, own_data, keys)
                flags.append(watch.join_flags())
                return results

            results, replay = self._record(compute)
        return _Recording(own_state, own_data, keys, results, replay, watch.reports, flags[-1])


def _are_same_bits(one: Tensor, other: Tensor) -> bool:
    bits = [tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)]
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(*bits)


def record_cuda_graph(compute: Callable[[], Tensors]) -> tuple[Tensors, Callable[[], None]]:
    """Records as a CUDA graph. Raises RuntimeError where something waits for the card."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = compute()
    return results, graph.replay


def has_card_room(memory_bytes: int) -> bool:
    """Returns whether the card and this process' share of it hold a recording beside the plain passes so far."""
    taken = torch.cuda.max_memory_reserved()
    return 2 * taken <= memory_bytes and taken <= torch.cuda.mem_get_info()[0]
