"""The cost of a document before it is run: forward and backward on meta tensors, which have shapes and no elements.

The bound holds for every given number of rows, and for the tried sizes: the ends and the middle of each named one. A
batch of sizes in between is bounded by itself before it is run (`admit_batch`): no shape in a document depends on the
data's values, so the cost of a batch is known exactly from its own sizes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import torch
from torch import Tensor

from graphdoc.document.arguments import refuse_unless
from graphdoc.document.calls import TORCH_TYPES
from graphdoc.document.formulas import by_formula, call_measured
from graphdoc.document.graph import Input, Scan
from graphdoc.document.interpret import Program, Way, compute_gradients
from graphdoc.document.meter import BACKWARD, USUAL, Limits, Meter, TooMuch
from graphdoc.document.row_gradients import peak_by_rows
from graphdoc.document.row_mixing import refuse_mixing
from graphdoc.document.scan_costs import STEPS_RUN, by_steps
from graphdoc.errors import DocumentRefused
from graphdoc.figures import Bound

Sizes = Mapping[str, int]
NONE: Final[Sizes] = {}
BY_ELEMENT: Final = 6
"""Operations on each element of a row's gradient until it is in the sum: made finite, squared, added, scaled, added."""


def compute_bound(
    program: Program, rows: int | Sequence[int], limits: Limits = USUAL, training: bool = True, by_row: bool = False
) -> Bound:
    """Returns the cost of one pass over any of these numbers of rows, the first of them the largest, for all sizes.

    Without `training` that of a forward pass alone; `by_row` that of one that keeps each row's gradient apart. Raises
    DocumentRefused over the limits, and where shapes do not fit at the most rows and the largest sizes.
    """
    most, *fewer = (rows,) if isinstance(rows, int) else rows
    try:
        bounds = compute_exact_bound(program, most, NONE, limits, training, by_row)
        for count in fewer:  # the last microbatch, which every task has
            try:
                bound = compute_exact_bound(program, count, NONE, limits, training, by_row)
            except TooMuch:
                raise
            except DocumentRefused as error:
                raise DocumentRefused(f"the last microbatch of a task has {count} rows: {error.detail}") from None
            bounds = merge_bounds((bounds, bound))
        named = program.document.sizes
        tried: list[Sizes] = [dict.fromkeys(named, 1)] if named else []
        for name, largest in named.items():
            tried += [{name: size} for size in sorted({1, 2, largest // 2, largest - 1})]
        for sizes in tried:
            try:
                bounds = merge_bounds((bounds, compute_exact_bound(program, most, sizes, limits, training, by_row)))
            except TooMuch:
                raise
            except DocumentRefused:
                continue  # shapes do not fit: such a batch costs nothing, for it is refused as well
    except TooMuch as error:
        raise DocumentRefused(error.detail) from None
    if by_row:
        refuse_mixing(program)
    return bounds


def admit_batch(
    program: Program, rows: int, sizes: Sizes, limits: Limits, training: bool = True, by_row: bool = False
) -> Bound:
    """Returns the cost of a pass over a batch of just these sizes. Raises DocumentRefused over the limits."""
    try:
        return compute_exact_bound(program, rows, sizes, limits, training, by_row)
    except DocumentRefused as error:
        named = "".join(f", {name} {size}" for name, size in sizes.items())
        raise DocumentRefused(f"a batch of {rows} rows{named}: {error.detail}") from None


def compute_exact_bound(
    program: Program, rows: int, sizes: Sizes, limits: Limits, training: bool = True, by_row: bool = False
) -> Bound:
    """Returns the cost of one pass over `rows` rows at these sizes; unnamed sizes are the largest.

    Raises TooMuch over the limits, DocumentRefused where shapes do not fit.
    """
    steps = sum(STEPS_RUN * len(node.body) if isinstance(node, Scan) else 1 for node in program.document.nodes)
    meter = Meter(limits, steps, BACKWARD if training else 0)
    shapes = program.document.batch(rows, sizes)
    state, data = {}, {}
    for entry in program.document.inputs:
        if entry.kind == "data":
            data[entry.name] = _build_meta_tensor(entry, shapes[entry.name][0])
        else:
            state[entry.name] = _build_meta_tensor(entry, entry.shape)
    reproducible, native = (program.document.arithmetic == one for one in ("reproducible", "native"))
    refuse_unless(native or not by_row, "step.per_row: answers with noise are not compared: leave out arithmetic")
    call = call_measured if reproducible else by_formula
    with meter, torch.set_grad_enabled(training), program.computing("meta"):
        for tensor in (*state.values(), *data.values()):
            meter.hold(tensor)
        results = program.run(state, data, bytes(32), meter.count, Way(call, partial(by_steps, meter)))
        trainable = [state[entry.name] for entry in program.document.trainable]
        if training and trainable:
            compute_gradients(results.loss, trainable)
        del results
    if not by_row:
        only_on_cpu = "arithmetic: reproducible, on processors" if reproducible else meter.only_on_cpu
        return Bound(rows, meter.operations, meter.peak, only_on_cpu)
    clipped = BY_ELEMENT * rows * sum(tensor.numel() for tensor in trainable)
    peak = max(meter.peak, peak_by_rows(program, state, data, limits))
    return Bound(rows, meter.operations + clipped, peak, meter.only_on_cpu)


def merge_bounds(bounds: Sequence[Bound]) -> Bound:
    """Returns the largest figures of all these bounds."""
    return replace(
        bounds[0],
        operations=max(one.operations for one in bounds),
        peak_bytes=max(one.peak_bytes for one in bounds),
        only_on_cpu=next((one.only_on_cpu for one in bounds if one.only_on_cpu), ""),
    )


def _build_meta_tensor(entry: Input, shape: Sequence[int]) -> Tensor:
    return torch.empty(shape, dtype=TORCH_TYPES[entry.dtype], device="meta", requires_grad=entry.grad)
