"""Computes what a task costs any worker, from document and step, before anything large is downloaded. No torch.

Memory is that of the whole child process while it computes the task: what it has when idle, the arena that it shares
with its parent (state, rows and answer), its own copy of the state, one pass, and what is kept between passes.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from gradmarket.market.gradient.optimizers import optimizer
from gradmarket.market.step import GradientStep, InnerOptimizer, LocalStep, Step
from graphdoc.document.graph import Document, Expected
from graphdoc.figures import Bound

RUNTIME: Final = 48 * 2**20
"""Bytes that the first pass of a child takes for kernels and their libraries, whatever the document."""
FRAGMENTS: Final = 0.15
"""Of a pass, what the allocator cannot give back at its highest."""

EVALUATION_ROWS: Final = 1024
"""Held-out rows that are evaluated at once: fixed, so that the result does not depend on the machine."""


@dataclass(frozen=True)
class Cost:
    """The cost of one task. `operations` are floating-point ones, a multiply-add counts two; the others are bytes."""

    operations: int
    memory: int
    """The peak of the whole child process."""
    step_memory: int
    """The part of it on the computing device; the rest is the idle process and the arena."""
    state: int
    """Parameters, buffers and constants, which are downloaded for each version of the parameters."""
    only_on_cpu: str
    """See Bound."""


def cost(document: Document, bound: Bound, step: Step) -> Cost:
    """Returns the cost of one task; `bound` is that of one pass over any of step.pass_sizes rows."""
    sizes = _Sizes.of(document, step)
    between = _local(sizes, step) if isinstance(step, LocalStep) else 0
    sums = sizes.answer + sizes.largest if step.by_row or step.rows > step.pass_rows else 0
    sums += (2 * step.pass_rows + 1) * sizes.trained if step.by_row else 0  # rows and sums are float64
    passing = int((1 + FRAGMENTS) * bound.peak_bytes) + sums + between
    shared = sizes.state + sizes.rows + sizes.answer + _memory_in_and_out(sizes, step)
    memory = bound.idle_bytes + RUNTIME + shared + max(passing, _after(sizes, step))
    operations = bound.operations * step.passes + step.moves * sizes.moving
    return Cost(operations, memory, passing, sizes.state, bound.only_on_cpu)


def evaluation(rows: int) -> GradientStep:
    """How so many held-out rows are gone through."""
    return GradientStep(rows=rows, microbatch=EVALUATION_ROWS)


def evaluation_cost(document: Document, bound: Bound, rows: int) -> Cost:
    """Of an evaluation over so many rows; `bound` is that of one forward pass over any of its parts."""
    state, held = _bytes(document.state), _bytes(document.batch(rows))
    passing = int((1 + FRAGMENTS) * bound.peak_bytes)
    memory = bound.idle_bytes + RUNTIME + state + held + passing
    return Cost(bound.operations * evaluation(rows).passes, memory, passing, state, bound.only_on_cpu)


@dataclass(frozen=True)
class _Sizes:
    """Sizes in bytes."""

    state: int
    rows: int
    trained: int
    answer: int
    """In the arena it stays where the last task's was written, so that from the second task on it is beside a pass."""
    largest: int
    """The largest tensor that is trained: its part of a sum is beside it before it is added."""
    scratch: int
    """What an inner step takes besides parameters, gradients and memory, for the one parameter that it is at."""
    moving: int
    """The operations of an inner step that grow faster than the parameters."""

    @classmethod
    def of(cls, document: Document, step: Step) -> "_Sizes":
        state, rows = _bytes(document.state), _bytes(document.batch(step.moves * step.rows))
        trained = 4 * sum(entry.elements for entry in document.trainable)
        updates = 4 * sum(math.prod(document.state[name][0]) for name in document.updates)
        scratch, moving = _inner(document, step.optimizer) if isinstance(step, LocalStep) else (0, 0)
        largest = 4 * max((entry.elements for entry in document.trainable), default=0)
        return cls(state, rows, trained, 4 + trained + updates, largest, scratch, moving)


def _bytes(arrays: Expected) -> int:
    return sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in arrays.values())


def _inner(document: Document, chosen: InnerOptimizer) -> tuple[int, int]:
    """Returns the scratch bytes and the operations of an inner step; see _Sizes."""
    settings = optimizer(chosen.name).Settings(**chosen.settings)
    shapes = [(entry.name, tuple(entry.shape)) for entry in document.trainable]
    scratch = max((settings.scratch(*one) for one in shapes), default=0)
    return scratch, sum(settings.operations(*one) for one in shapes)


def _local(sizes: _Sizes, step: LocalStep) -> int:
    """Returns the bytes held beside a pass of local steps: the changed parameters, and the inner optimizer's memory."""
    return (1 + moments(step.optimizer)) * sizes.trained


def _memory_in_and_out(sizes: _Sizes, step: Step) -> int:
    """Returns the bytes in the arena that an inner optimizer's memory takes beside state and answer, in and out.

    Windows have it there; corrections are there once, and once more while they are added.
    """
    if not isinstance(step, LocalStep):
        return 0
    memory = 2 * moments(step.optimizer) if step.leaves else 0
    return (memory + 2 * step.control_variates) * sizes.trained


def _after(sizes: _Sizes, step: Step) -> int:
    """Returns the peak after a pass: the answer is copied on its way into the arena.

    Between local steps the inner optimizer holds the old and the new of all that it keeps.
    """
    if not isinstance(step, LocalStep):
        return 2 * sizes.answer
    clipped = 0 if step.optimizer.clip is None else 1
    return sizes.state + (2 + clipped + 2 * (1 + moments(step.optimizer))) * sizes.trained + sizes.scratch


def moments(chosen: InnerOptimizer) -> int:
    """Returns how many float32 numbers an optimizer keeps for each parameter."""
    rule = optimizer(chosen.name)
    kept = rule.start({"p": np.zeros(1, np.float32)}, rule.Settings(**chosen.settings))
    return sum(array.dtype == np.float32 for array in kept.values())
