"""Plain answers of the model and the runner. No torch, so that a process without it can read them."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field


@dataclass(frozen=True)
class Published:
    """What a job starts from: the graph documents of training and of evaluation, and every tensor that they read.

    Both documents take the same state by the same names; `parameters` has every parameter, buffer and constant.
    """

    document: bytes
    evaluation: bytes
    parameters: dict[str, np.ndarray]


@dataclass(frozen=True)
class Bound:
    """What one forward and backward pass over `rows` rows costs."""

    rows: int
    operations: int
    """Floating-point operations; a multiply-add is two."""
    peak_bytes: int
    """State, data, every live intermediate value, the gradients and known workspaces at their highest."""
    only_on_cpu: Annotated[str, Field(max_length=200)]
    """The first kernel that CUDA lacks for the same bits twice (operators.cuda), in words; empty where it has all."""
    idle_bytes: Annotated[int, Field(ge=0)] = 0
    """Resident memory of the child that told it, before it computed anything; 0 where nobody computes."""


@dataclass(frozen=True)
class Range:
    """Whole numbers that an operator takes: from `least` to below `end`, and `ignored` where it stands for none."""

    least: int
    end: int
    ignored: int | None


@dataclass(frozen=True)
class Metrics:
    """Means over `rows` held-out rows: the loss, and each metric of the document by its name."""

    rows: int
    loss: float
    values: dict[str, float]
