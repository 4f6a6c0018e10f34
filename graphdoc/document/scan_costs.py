"""The cost of a scan, from a few of its steps: each takes as many operations and keeps as many bytes as any other.

Two steps are tried to measure the bytes that a step keeps for the backward pass. Then all steps but the last two are
one call that keeps as much, and the last two are run: in the backward pass they come first, while the others' bytes are
alive, so that the peak is that of the whole.
"""

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from graphdoc.document.meter import Meter
from graphdoc.document.scans import ScanRun, check_carries, every_step

RUN: Final = 2
STEPS_RUN: Final = RUN + 2
"""The most steps of a scan that are run."""
CALL_BYTES: Final = 768
"""Memory that torch takes for one operator of the backward pass beside its tensors, as measured."""


class _Rest(torch.autograd.Function):
    """Carries and results of many steps at once; `kept` bytes live until the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, carries: Sequence[Tensor], every: Sequence[Tensor], steps: int, kept: int, *inputs: Tensor
    ) -> Any:
        ctx.save_for_backward(torch.empty(kept, dtype=torch.uint8, device="meta"))
        ctx.forms = [(tensor.shape, tensor.dtype) for tensor in inputs]
        blocks = [part for one in every for part in _stack_alike(one, steps).unbind()] if steps else []
        return (*(_stack_alike(one, 1)[0] for one in carries), *blocks)

    @staticmethod
    def backward(ctx: Any, *_gradients: Tensor) -> Any:
        needed = zip(ctx.forms, ctx.needs_input_grad[4:], strict=True)
        parts = [torch.empty(shape, dtype=kind, device="meta") if wanted else None for (shape, kind), wanted in needed]
        return (None, None, None, None, *parts)


def _stack_alike(tensor: Tensor, count: int) -> Tensor:
    """Returns `count` tensors in one, each with the shape and strides of this one."""
    strides = tensor.stride()
    span = 1 + sum((size - 1) * by for size, by in zip(tensor.shape, strides, strict=True)) if tensor.numel() else 0
    return tensor.new_empty_strided((count, *tensor.shape), (span, *strides))


def by_steps(meter: Meter, loop: ScanRun) -> Sequence[Any]:
    """Returns the scan's results on meta tensors, while `meter` counts."""
    length, count = loop.scan.length, len(loop.scan.every)
    if length <= STEPS_RUN:
        return every_step(loop)
    rest = length - RUN
    given = [value for each in loop.given for value in each[:rest]]
    inputs = [value for value in (*loop.start, *given, *loop.fixed) if isinstance(value, Tensor)]
    kept, every = _measure_kept_bytes(meter, loop, inputs)
    carries, columns = _run_rest(loop, every, rest, kept, inputs)
    for number in range(rest, length):
        carries, parts = loop.once(number, carries, 1 if number < length - 1 else rest + 1)
        for column, value in zip(columns, parts, strict=False):
            column.append(value)
    return [*parts[count:], *(value for column in columns for value in column)]


def _measure_kept_bytes(meter: Meter, loop: ScanRun, inputs: Sequence[Tensor]) -> tuple[int, list[Any]]:
    """Returns the bytes that a step keeps beside its results, and its results, as examples."""
    carries, _ = _run_rest(loop, [], 0, 0, inputs)
    carries, first = loop.once(0, carries, 0)
    check_carries(loop.start, carries)
    before = meter.live
    carries, every = loop.once(1, carries, 0)
    kept = meter.live - before + (CALL_BYTES * len(loop.scan.body) if torch.is_grad_enabled() else 0)
    del first
    return max(0, kept - sum(_stack_alike(one, 1).nbytes for one in every)), [one.detach() for one in every]


def _run_rest(
    loop: ScanRun, every: Sequence[Tensor], steps: int, kept: int, inputs: Sequence[Tensor]
) -> tuple[list[Any], list[list[Any]]]:
    """Returns carries after `steps` steps, and for each of `every` its value in each of them."""
    parts = _Rest.apply(loop.start, every, steps, kept * steps, *inputs)  # type: ignore[no-untyped-call]
    start = len(loop.start)
    columns = [list(parts[start + place * steps :][:steps]) for place in range(len(every))]
    return list(parts[:start]), columns
