"""Runs a task by its plan, operation by operation, and gives a leaf for each: the digests of its results.

It runs each node once, as the task does: backward of a node goes on from its run forward. Values that no later
operation reads are freed. A part of the plan whose details are not requested is digested by its checkpoint alone: the
results that later parts read.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from gradmarket.runner.features.disputes.traced.operations import Operations, read_constant
from gradmarket.runner.features.disputes.traced.plan import Slot, Source, TaskOperation, is_backward
from graphdoc.tracing.nodes import Ran, run_backward, run_forward
from graphdoc.tracing.values import Blocks, Traced, Value, compute_digest, find_block, locate_value, pack_value

Spoil = Callable[[int, list[Value]], list[Value]]
"""Replaces the results of the operation of this number, as a lying worker would."""


@dataclass(frozen=True)
class TaskTrace:
    """A checkpoint for each part, every leaf of the detailed parts in order, the values asked for, the payload's root.

    A checkpoint is the digests of the part's lasting results, in their order.
    """

    checkpoints: list[bytes]
    leaves: list[bytes]
    values: dict[Slot, bytes]
    root: bytes


@dataclass
class _Held:
    """A value that later operations read, its digest, and the blake3 of the memory block that it fills."""

    value: Value
    known: bytes | None = None
    blocks: Blocks = field(default_factory=dict)
    copied: Traced | None = None

    @property
    def digest(self) -> bytes:
        """Returns the digest, computed once."""
        if self.known is None:
            self.known = compute_digest(self.value)
        return self.known

    def as_tensor(self, device: str) -> Value:
        """Returns the value; for a plain array, the one tensor copy that all calls share."""
        if self.value is None or not isinstance(self.value.data, np.ndarray):
            return self.value
        self.copied = self.copied or Traced(self.value.tensor(device))
        return self.copied


@dataclass
class _Tracing:
    operations: Operations
    wanted: Collection[Slot]
    spoil: Spoil | None
    held: dict[Slot, _Held] = field(default_factory=dict)
    checkpoints: list[bytes] = field(default_factory=list)
    leaves: list[bytes] = field(default_factory=list)
    values: dict[Slot, bytes] = field(default_factory=dict)
    _ran: dict[int, Ran] = field(default_factory=dict)

    def run_part(self, first: int, listed: Sequence[TaskOperation], lasting: Collection[Slot], detailed: bool) -> None:
        """Runs operations from number `first` on; `lasting` are results that are needed after them."""
        last: dict[Slot, int] = {}
        for leaf, operation in enumerate(listed, first):
            backward = is_backward(operation)
            reads = operation.reads[len(operation.about[0].call.reads) :] if backward else operation.reads
            last.update({Slot(leaf, result): leaf for result in range(operation.results)})
            last.update({read._replace(grad=False): leaf for read in reads if isinstance(read, Slot)})
        dying: dict[int, list[Slot]] = {}  # by operation the results that nothing reads after it
        for slot, leaf in last.items():
            if slot not in lasting:
                dying.setdefault(leaf, []).append(slot)
        for leaf, operation in enumerate(listed, first):
            results = self._compute(operation)
            if self.spoil is not None:
                results = self.spoil(leaf, results)
            self._digest_results(leaf, operation, results, detailed)
            for slot in dying.get(leaf, ()):
                self.held.pop(slot, None)
        self.checkpoints.append(b"".join(self.held[slot].digest for slot in sorted(lasting)))

    def _compute(self, operation: TaskOperation) -> list[Value]:
        if operation.kind != "call":
            return self.operations.compute(operation, [self._read(source) for source in operation.reads])
        with self.operations.plan.task.program.computing(torch.device(self.operations.device).type):
            return self._call(operation)

    def _call(self, operation: TaskOperation) -> list[Value]:
        step, seed = operation.about
        arguments, device = len(step.call.reads), self.operations.device
        if step.way == "forward":
            values = [self._read_tensor(source) for source in operation.reads]
            ran, results = run_forward(step.call, [each for each in values if each is not None], seed, device)
            if any(alias is not None for alias in ran.aliases):
                self._ran[id(step.call)] = ran
            return results
        values = [self._read(source) for source in operation.reads[arguments:]]
        ran_forward = self._ran.pop(id(step.call), None)
        made = len(step.call.makes)
        return values[made:] if ran_forward is None else run_backward(ran_forward, values[:made], values[made:])

    def _read(self, source: Source) -> Value:
        if not isinstance(source, Slot):
            return read_constant(source)
        return self.held[source._replace(grad=False)].value

    def _read_tensor(self, source: Source) -> Value:
        if not isinstance(source, Slot):
            return read_constant(source)
        value = self.held[source._replace(grad=False)].as_tensor(self.operations.device)
        return Traced(value.data, True) if value is not None and source.grad else value

    def _digest_results(self, leaf: int, operation: TaskOperation, results: Sequence[Value], detailed: bool) -> None:
        """Digests results; a result that is the very value that was read, or fills its memory, is not hashed again."""
        slots = [source._replace(grad=False) for source in operation.reads if isinstance(source, Slot)]
        near = [self.held[slot] for slot in slots if slot in self.held]
        known, beside = {id(each.value): each for each in near if each.value is not None}, [each.value for each in near]
        blocks: Blocks = {block: digest for each in near for block, digest in each.blocks.items()}
        digests = []
        for place, value in enumerate(results):
            located = locate_value(value, beside)
            held = known.get(id(value)) or _Held(located)
            if detailed and id(value) not in known:
                held.known, block = compute_digest(located, blocks), find_block(located)
                held.blocks = {} if block is None else {block: blocks[block]}
            slot = Slot(leaf, place)
            self.held[slot] = held
            if detailed:
                digests.append(held.digest)
            if slot in self.wanted:
                self.values[slot] = pack_value(held.value)
        if detailed:
            self.leaves.append(b"".join(digests))


def trace_task(
    operations: Operations,
    wanted: Collection[Slot] = (),
    spoil: Spoil | None = None,
    detailed: Collection[int] | None = None,
) -> TaskTrace:
    """Returns the trace of a task, with the bytes of the `wanted` values and leaves of the `detailed` parts, or of all.

    Raises Refused, OutOfMemory.
    """
    tracing = _Tracing(operations, wanted, spoil)
    for number, (first, listed) in enumerate(operations.plan.parts()):
        lasting = operations.plan.list_lasting(number)
        tracing.run_part(first, listed, lasting, detailed is None or number in detailed)
    root = tracing.held[Slot(len(operations.plan) - 1, 0)].value
    return TaskTrace(tracing.checkpoints, tracing.leaves, tracing.values, b"" if root is None else root.data)
