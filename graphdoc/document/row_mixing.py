"""Checks that a document computes each row by itself: the loss of two rows is then a part of each, and nothing more.

Shapes do not show it: a row that has the mean of all rows taken from it, or a contrastive loss between rows, is made of
operators that also compute rows apart. So the document is run on numbers. Of rows a, b and a', b' in their places,

    L(a, b) - L(a', b) - L(a, b') + L(a', b')

is zero, for the loss and its gradient, where the part of one row does not depend on the other. Draws of dropout go by a
row's place and are the same in all four. Rows and parameters are random, so the check reveals nothing of a holder's
rows.
"""

import math
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from graphdoc.document.calls import TORCH_TYPES
from graphdoc.document.graph import Precision
from graphdoc.document.interpret import Program, compute_gradients
from graphdoc.document.ranges import find_input_ranges
from graphdoc.errors import DocumentRefused, GraphdocError

ROUNDING: Final[Mapping[Precision, float]] = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 3e-2}
"""The part of a row's addition, in bf16 of loss and gradient, that may depend on the other row by rounding."""
MOST_ELEMENTS: Final = 2**24
"""Models of more parameters are not run: the check may take no longer than a bound from shapes."""
_WHOLE: Final = 3
"""The limit of drawn whole numbers for an input without a bound."""


def refuse_mixing(program: Program) -> None:
    """Raises DocumentRefused where a row's gradient depends on the rows beside it.

    Positive numbers are tried where others give a loss that is not finite, as logarithms may; a document without a
    finite loss for either is not judged, nor one of more than MOST_ELEMENTS.
    """
    if sum(math.prod(shape) for shape, _ in program.document.state.values()) > MOST_ELEMENTS:
        return
    precision = program.document.precision
    for least in (-1.0, 0.05):
        draw = torch.Generator().manual_seed(1)
        try:
            trained = [entry.name for entry in program.document.trainable]
            state = {}
            for entry in program.document.inputs:
                if entry.kind != "data":
                    kind = TORCH_TYPES[entry.dtype]
                    tensor = torch.rand(tuple(entry.shape), generator=draw) * (1.0 - least) + least
                    state[entry.name] = (tensor * 0.5).to(kind).requires_grad_(entry.grad)
            first, second = (_draw_rows(program, least, draw) for _ in range(2))
            answers = []
            for one, other in ((first, first), (second, first), (first, second), (second, second)):
                rows = {name: torch.stack([one[name][0], other[name][1]]) for name in first}
                results = program.run(state, rows, bytes(32))
                parts = [results.loss, *compute_gradients(results.loss, [state[name] for name in trained])]
                whole = torch.cat([part.detach().double().reshape(-1) for part in parts])
                # of sums, where the rows are weighed
                answers.append(whole if results.weight is None else whole * results.weight.double())
            found = torch.stack(answers)
        except (GraphdocError, RuntimeError, IndexError):
            continue
        if not found.isfinite().all():
            continue
        both, other_a, other_b, neither = found
        mixed, rounding = (both - other_a - other_b + neither).norm(), ROUNDING[precision]
        difference = (both - other_a).norm() + (both - other_b).norm()
        if mixed > rounding * (difference if precision == "fp32" else difference + both.norm()):
            raise DocumentRefused(
                "step.per_row: a row's gradient depends on the rows beside it, so that no row has one of its own: "
                "take no mean over the batch in the model, and compare no rows in the loss"
            )
        return


def _draw_rows(program: Program, least: float, draw: torch.Generator) -> dict[str, Tensor]:
    """Returns two rows of numbers that the document takes, by data input."""
    allowed, rows = find_input_ranges(program, 2), {}
    for entry in program.document.inputs:
        if entry.kind != "data":
            continue
        kind, shape = TORCH_TYPES[entry.dtype], (2, *entry.shape)
        if kind.is_floating_point:
            rows[entry.name] = torch.rand(shape, generator=draw).to(kind) * (1.0 - least) + least
            continue
        if kind == torch.bool:
            rows[entry.name] = torch.rand(shape, generator=draw) < 0.5
            continue
        tensor = torch.randint(0, _WHOLE, shape, generator=draw).to(kind)
        flat = tensor.view(2, -1)
        for one in allowed.get(entry.name, ()):
            columns = list(one.columns) or list(range(flat.shape[1]))
            end = min(one.end, one.least + 2**20)
            flat[:, columns] = torch.randint(one.least, end, (2, len(columns)), generator=draw).to(kind)
        rows[entry.name] = tensor
    return rows
