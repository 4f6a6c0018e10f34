"""Computes a task's cost, the same for every worker, from document and step, before any large download. No torch.

Memory is that of the whole child process, as in graphdoc.cost.
"""

import math
from dataclasses import dataclass

import numpy as np

from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.step import InnerOptimizer, LocalStep, Step
from graphdoc.cost import FRAGMENTS, RUNTIME, Cost, size_of
from graphdoc.document.graph import Document
from graphdoc.figures import Bound


def compute_task_cost(document: Document, bound: Bound, step: Step) -> Cost:
    """Returns the cost of one task; `bound` is that of one pass over any of step.pass_sizes rows."""
    sizes = _Sizes.of(document, step)
    between, shared = 0, sizes.state + sizes.rows + sizes.answer
    peak_after = 2 * sizes.answer  # after a pass: the answer is copied on its way into the arena
    if isinstance(step, LocalStep):
        kept = count_moments(step.optimizer)
        # beside a pass: the changed parameters, and the inner optimizer's memory
        between = (1 + kept) * sizes.trained
        # in the arena, in and out: windows have that memory there, and corrections are there once more while added
        shared += ((2 * kept if step.leaves else 0) + 2 * step.control_variates) * sizes.trained
        clipped = 0 if step.optimizer.clip is None else 1
        peak_after = sizes.state + (2 + clipped + 2 * (1 + kept)) * sizes.trained + sizes.scratch
    sums = sizes.answer + sizes.largest if step.by_row or step.room > step.pass_rows else 0
    sums += (2 * step.pass_rows + 1) * sizes.trained if step.by_row else 0  # rows and sums are float64
    passing = int((1 + FRAGMENTS) * bound.peak_bytes) + sums + between
    memory = bound.idle_bytes + RUNTIME + shared + max(passing, peak_after)
    operations = bound.operations * step.passes + step.moves * sizes.moving
    return Cost(operations, memory, passing, sizes.state, bound.only_on_cpu)


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
    """Bytes that an inner step takes besides parameters, gradients and memory, for its current parameter."""
    moving: int
    """The operations of an inner step that grow faster than the parameters."""

    @classmethod
    def of(cls, document: Document, step: Step) -> "_Sizes":
        state, rows = size_of(document.state), size_of(document.batch(step.moves * step.room))
        trained = 4 * sum(entry.elements for entry in document.trainable)
        updates = 4 * sum(math.prod(document.state[name][0]) for name in document.updates)
        scratch = moving = 0
        if isinstance(step, LocalStep):
            settings = load_optimizer(step.optimizer.name).Settings(**step.optimizer.settings)
            shapes = [(entry.name, tuple(entry.shape)) for entry in document.trainable]
            scratch = max((settings.count_scratch_bytes(*one) for one in shapes), default=0)
            moving = sum(settings.operations(*one) for one in shapes)
        largest = 4 * max((entry.elements for entry in document.trainable), default=0)
        return cls(state, rows, trained, 4 + trained + updates, largest, scratch, moving)


def count_moments(chosen: InnerOptimizer) -> int:
    """Returns how many float32 numbers an optimizer keeps for each parameter."""
    rule = load_optimizer(chosen.name)
    kept = rule.start({"p": np.zeros(1, np.float32)}, rule.Settings(**chosen.settings))
    return sum(array.dtype == np.float32 for array in kept.values())
