"""Computes the cost of a document's run before anything large is read. No torch.

Memory is that of the whole child process: the idle process, the arena that it shares with its parent (state, rows and
answer), its own copy of the state, one pass, and the values kept between passes.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from graphdoc.document.graph import Document, Expected, answer_of
from graphdoc.figures import Bound

RUNTIME: Final = 48 * 2**20
"""Bytes that the first pass of a child takes for kernels and their libraries, for any document."""
FRAGMENTS: Final = 0.15
"""Share of a pass's peak that the allocator holds beside it in freed pieces."""
EVALUATION_ROWS: Final = 1024
"""Rows that are evaluated at once: fixed, so that the result does not depend on the machine."""


@dataclass(frozen=True)
class Cost:
    """The cost of one run. `operations` are floating-point ones, a multiply-add counts two; the others are bytes."""

    operations: int
    memory: int
    """The peak of the whole child process."""
    step_memory: int
    """The part of it on the computing device; the rest is the idle process and the arena."""
    state: int
    """Parameters, buffers and constants."""
    only_on_cpu: str
    """See Bound."""


def pass_sizes(rows: int, most: int) -> tuple[int, ...]:
    """Returns the row counts of passes of at most `most` rows: the largest, and the last one where it is smaller."""
    size = min(rows, most)
    return (size, rows % size) if rows % size else (size,)


def pass_count(rows: int, most: int) -> int:
    """Returns the number of passes of at most `most` rows over all rows."""
    return -(-rows // min(rows, most))


def evaluation_sizes(rows: int) -> tuple[int, ...]:
    """Returns the row counts of an evaluation's passes."""
    return pass_sizes(rows, EVALUATION_ROWS)


def evaluation_cost(document: Document, bound: Bound, rows: int, most: int = EVALUATION_ROWS) -> Cost:
    """Returns the cost of an evaluation over all rows; `bound` is that of one forward pass over any of its sizes."""
    state, held = size_of(document.state), size_of(document.batch(rows))
    passing = int((1 + FRAGMENTS) * bound.peak_bytes)
    memory = bound.idle_bytes + RUNTIME + state + held + passing
    return Cost(bound.operations * pass_count(rows, most), memory, passing, state, bound.only_on_cpu)


def gradient_cost(document: Document, bound: Bound, rows: int, most: int) -> Cost:
    """Returns the cost of a mean gradient over all rows; `bound` is that of one pass over any of its sizes."""
    state, held, answer = (size_of(part) for part in (document.state, document.batch(rows), answer_of(document)))
    largest = 4 * max((entry.elements for entry in document.trainable), default=0)
    passing = int((1 + FRAGMENTS) * bound.peak_bytes) + (answer + largest if rows > most else 0)
    memory = bound.idle_bytes + RUNTIME + state + held + answer + max(passing, 2 * answer)
    return Cost(bound.operations * pass_count(rows, most), memory, passing, state, bound.only_on_cpu)


def size_of(arrays: Expected) -> int:
    """Returns the bytes of these arrays."""
    return sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in arrays.values())
