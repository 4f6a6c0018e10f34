"""Operators whose cost a formula gives, where meta kernels would take one step after another or another path.

A recurrence of 20,000 places is one node, and on meta tensors 40 times as many calls; attention is fused on the CPU and
is not on meta. Each stand-in takes its operator's arguments, on meta tensors only, and gives results of the same shapes
and element types; it allocates as much as the CPU's kernel keeps for the backward pass, and takes in it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import torch
from torch import Tensor

from graphdoc.conditions.recurrent import compute_recurrent_shapes
from graphdoc.document.plans import call_operator
from graphdoc.document.prepare import PreparedCall
from graphdoc.errors import DocumentRefused

GATES: Final = {"lstm": 4, "gru": 3, "rnn": 1}


@dataclass(frozen=True)
class Taken:
    """The measured memory of a recurrence: in elements a place, row and hidden feature, but for `step`.

    `kept`: kept by each run of a layer for its backward pass; `cells` and `features` (of the input): taken by one run
    in it. `both`: taken of the input's features by a backward run beside the first. `step`: bytes for each place of a
    run whose places are separate nodes of the graph.
    """

    kept: float
    cells: float
    features: float
    both: float = 0
    step: int = 0


FUSED: Final = Taken(0, 4, 1)
"""An LSTM in float32 without projection, one call of oneDNN; `_apply_recurrence_formula` counts its kept memory."""
UNFUSED: Final = {
    "lstm": Taken(12, 6, 0.5, 2, 20 * 2**10),
    "gru": Taken(10, 2, 0.5, 2, 18 * 2**10),
    "rnn": Taken(4.5, 2, 0.25, 2, 5 * 2**10),
}


class _Formula(torch.autograd.Function):
    """Results of given shapes; `kept` elements live until the backward pass, which takes `taken` for itself."""

    @staticmethod
    def forward(ctx: Any, shapes: Sequence[Sequence[int]], kept: int, taken: int, *inputs: Tensor) -> Any:
        first = inputs[0]
        workspace = first.new_empty(kept)
        results = tuple(first.new_empty(shape) for shape in shapes)
        ctx.taken = taken
        ctx.save_for_backward(workspace, *inputs, *results)
        ctx.inputs = len(inputs)
        return results

    @staticmethod
    def backward(ctx: Any, *_gradients: Tensor) -> Any:
        saved = ctx.saved_tensors
        inputs = saved[1 : 1 + ctx.inputs]
        scratch = inputs[0].new_empty(ctx.taken)
        needed = ctx.needs_input_grad[3:]
        given = [torch.empty_like(tensor) if wanted else None for tensor, wanted in zip(inputs, needed, strict=True)]
        del scratch
        return (None, None, None, *given)


def _apply_recurrence_formula(kind: str, arguments: Sequence[Any]) -> tuple[Tensor, ...]:
    """Returns the results of lstm.input, gru.input, rnn_tanh.input and rnn_relu.input for valid arguments."""
    tensor, start, weights, _, layers, _, _, both_ways, batch_first = arguments
    states = list(start) if isinstance(start, list | tuple) else [start]
    width, runs = weights[0].shape[0] // GATES[kind], layers * (2 if both_ways else 1)
    fused = kind == "lstm" and tensor.dtype == torch.float32 and weights[1].shape[1] == width
    each = FUSED if fused else UNFUSED[kind]
    places = tensor.shape[0] * tensor.shape[1]
    cells = places * width
    steps = tensor.shape[1 if batch_first else 0] * runs * each.step
    kept = int(each.kept * cells * runs) + steps // tensor.element_size()
    if fused:  # what oneDNN keeps for each place and row, as measured: rows are multiples of 16
        widths = [weights[run * len(weights) // runs].shape[1] for run in range(runs)]
        kept += places * sum(12 * _pad_width(width) + int(4.5 * _pad_width(max(width, one))) for one in widths)
    elif not (tensor.transpose(0, 1) if batch_first else tensor).is_contiguous():
        kept += tensor.numel()  # a copy, in which the places follow each other in memory
    features = each.features + (each.both if both_ways else 0)
    taken = int((each.cells * cells) * (2 if both_ways else 1) + features * tensor.numel())
    given: tuple[Tensor, ...] = _Formula.apply(  # type: ignore[no-untyped-call]
        compute_recurrent_shapes(arguments), kept, taken, tensor, *states, *weights
    )
    return given


def _pad_width(width: int) -> int:
    return -(-width // 16) * 16


def _apply_attention_formula(arguments: Sequence[Any]) -> Tensor | None:
    """Returns the result of scaled_dot_product_attention, where torch's fused kernel surely takes it; else None.

    An unclear case counts as no (sdp_utils_cpp.cpp).
    """
    query, key, value, mask, _, _, _, shared = arguments
    tensors = (query, key, value)
    floats = query.dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    alike = all(tensor.dtype == query.dtype and tensor.dim() == 4 and tensor.numel() for tensor in tensors)
    if not floats or not alike or shared or (mask is not None and mask.requires_grad):
        return None
    same = query.shape[-1] == key.shape[-1] == value.shape[-1] and query.shape[:2] == key.shape[:2] == value.shape[:2]
    fits = mask is None or (mask.dim() in (2, 4) and mask.dtype in (query.dtype, torch.bool))
    if not same or not fits or any(tensor.stride(-1) != 1 for tensor in tensors):
        return None
    places = query.numel() // query.shape[-1]
    (result,) = _Formula.apply([query.shape], 2 * places, 2 * places, query, key, value)  # type: ignore[no-untyped-call]
    return cast(Tensor, result)


STAND_INS: Final[Mapping[str, Callable[[Sequence[Any]], Any]]] = {
    "lstm.input": partial(_apply_recurrence_formula, "lstm"),
    "gru.input": partial(_apply_recurrence_formula, "gru"),
    **dict.fromkeys(("rnn_tanh.input", "rnn_relu.input"), partial(_apply_recurrence_formula, "rnn")),
    "scaled_dot_product_attention.default": _apply_attention_formula,
}
"""By key: from the arguments in the table's order to the results, or None where the operator itself is called."""


RECURRENT: Final = frozenset(STAND_INS) - {"scaled_dot_product_attention.default"}


def call_measured(step: PreparedCall, values: Sequence[Any]) -> Any:
    """Returns a step's results while a document in reproducible arithmetic is bounded: its own kernels are counted."""
    if step.name in RECURRENT:
        raise DocumentRefused("it has no reproducible kernel: write the recurrence with cells, or leave out arithmetic")
    return call_operator(step, values)


def by_formula(step: PreparedCall, values: Sequence[Any]) -> Any:
    """Returns a step's results while a document is bounded."""
    stand_in = STAND_INS.get(step.name)
    given = None if stand_in is None else stand_in(step.arguments(values))
    return call_operator(step, values) if given is None else given
