"""What a task costs whoever takes it, known from document and step before anything large is fetched. No torch."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from gradmarket.market.model.document.schema import Document
from gradmarket.market.model.figures import Bound
from gradmarket.market.step import LocalStep, Step

INNER_COPIES: Final = 5
"""Float32 copies of the parameters beside a pass of local steps: before, moved, gradient, and two moments at most."""


@dataclass(frozen=True)
class Cost:
    """`operations` are floating-point ones, a multiply-add two; the others are bytes."""

    operations: int
    memory: int
    state: int
    """Parameters, buffers and constants: what is downloaded for each version of the parameters."""
    only_on_cpu: str
    """See Bound."""


def cost(document: Document, bound: Bound, step: Step) -> Cost:
    """Of one task; `bound` is that of one pass over step.pass_rows rows."""
    trainable = 4 * sum(entry.elements for entry in document.trainable)
    beside = INNER_COPIES * trainable if isinstance(step, LocalStep) else 0
    state = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in document.state.values())
    return Cost(bound.operations * step.passes, bound.peak_bytes + beside, state, bound.only_on_cpu)
