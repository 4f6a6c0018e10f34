"""Result types of the model and the runner. Without torch, so that any process can read them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field


@dataclass(frozen=True)
class Published:
    """The tensors and graph documents that a job starts from: one document for training, one for evaluation.

    Both documents take the same state by the same names; `parameters` has every parameter, buffer and constant.
    """

    document: bytes
    evaluation: bytes
    parameters: dict[str, np.ndarray]
    metrics: bytes | None = None
    """A document whose metrics are of all its rows together, where any was asked for."""


@dataclass(frozen=True)
class Bound:
    """An upper bound of the cost of one forward and backward pass over `rows` rows."""

    rows: int
    operations: int
    """Floating-point operations; a multiply-add is two."""
    peak_bytes: int
    """The peak of state, data, all live intermediate values, gradients and known workspaces."""
    only_on_cpu: Annotated[str, Field(max_length=200)]
    """The first kernel without a deterministic CUDA version (operators.cuda), in words; empty if there is none."""
    idle_bytes: Annotated[int, Field(ge=0)] = 0
    """Resident memory of the child that measured it, before it computed; 0 where no child computes."""


@dataclass(frozen=True)
class Range:
    """Whole numbers that an operator takes: from `least` to below `end`, and `ignored`, which stands for no value."""

    least: int
    end: int
    ignored: int | None
    columns: tuple[int, ...] = ()
    """Where in a row, flattened in C order; empty for all of it."""


Ranges = Mapping[str, Sequence[Range]]
"""The ranges of each input; no column is in two ranges of one input."""


@dataclass(frozen=True)
class Metrics:
    """Means over `rows` held-out rows: the loss, and each metric of the document by its name."""

    rows: int
    loss: float
    values: dict[str, float]
