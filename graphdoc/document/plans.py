"""Plans the results of every node from shapes alone: a run with other values is refused at the first such node."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from graphdoc.conditions.recurrent import SEQUENCES, compute_recurrent_shapes
from graphdoc.document.prepare import PreparedCall
from graphdoc.errors import DocumentRefused

RANK_LIMIT: Final = 32
"""Most dimensions of any value: beyond this, torch's loops over dimensions take longer than over elements."""
KEPT: Final = 16
"""Cached plans of one document: one for each shape of its data."""

Form = tuple[torch.Size, torch.dtype] | int
"""The shape and element type of a tensor; the value of an integer."""
Plan = dict[int, list[Form]]
"""The form of each result of each node, by the node's number."""


Call = Callable[[PreparedCall, Sequence[Any]], Any]
"""Computes a step from the values so far."""
Hold = Callable[[int, Sequence[Any]], None]
"""Checks the results of the node of this number."""


def call_operator(step: PreparedCall, values: Sequence[Any]) -> Any:
    return step.call(*step.get(values))


def shaped_alone(step: PreparedCall, values: Sequence[Any]) -> Any:
    """Returns the result of a node whose arguments have shapes and no elements."""
    if step.name not in SEQUENCES:
        return call_operator(step, values)
    arguments = step.arguments(values)
    return tuple(arguments[0].new_empty(shape) for shape in compute_recurrent_shapes(arguments))


def read_result_form(result: Any) -> Form:
    """Returns the form of a value. Raises DocumentRefused where it has too many dimensions."""
    if not isinstance(result, Tensor):
        return int(result)
    if result.dim() > RANK_LIMIT:
        raise DocumentRefused(f"a value of {result.dim()} dimensions, more than {RANK_LIMIT}")
    return result.shape, result.dtype


def check_forms(_number: int, results: Sequence[Any]) -> None:
    """Raises DocumentRefused where a value has too many dimensions."""
    for result in results:
        read_result_form(result)


def record_forms(plan: Plan, number: int, results: Sequence[Any]) -> None:
    """Adds the node's forms to the plan.

    Raises DocumentRefused where a value has too many dimensions, or another form than in another step of a scan.
    """
    forms = list(map(read_result_form, results))
    if plan.setdefault(number, forms) != forms:
        raise DocumentRefused("its value has another shape or type in another step")


def hold_to(plan: Plan, number: int, results: Sequence[Any]) -> None:
    """Raises DocumentRefused where the results differ from the plan of the node."""
    forms = [(result.shape, result.dtype) if isinstance(result, Tensor) else result for result in results]
    if forms != plan[number]:
        raise DocumentRefused("its value is not of the shape and type that its arguments allow")


def without_elements(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns tensors of the same shapes and types on the meta device, which has no elements."""
    return {name: torch.empty_like(tensor, device="meta", requires_grad=False) for name, tensor in tensors.items()}


def key_of(data: Mapping[str, Tensor]) -> tuple[torch.Size, ...]:
    """Returns the shapes on which a plan depends; the document fixes everything else about its inputs."""
    return tuple(tensor.shape for tensor in data.values())
