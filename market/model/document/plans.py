"""What every node will give, known from shapes alone: a run whose values are unlike it is refused where it stands."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from gradmarket.market.errors import DocumentRefused
from gradmarket.market.model.document.conditions.recurrent import SEQUENCES, shapes
from gradmarket.market.model.document.prepare import PreparedCall

RANK_LIMIT: Final = 32
"""Dimensions of any value: torch's own loops over dimensions take longer than those over elements beyond this."""
KEPT: Final = 16
"""Plans of one document that are kept: one for each shape of data that it meets."""

Form = tuple[torch.Size, torch.dtype] | int
"""Of a tensor its shape and element type; of an integer itself."""
Plan = Sequence[list[Form]]
"""Of each node, of each result."""


Call = Callable[[PreparedCall, Sequence[Any]], Any]
"""What a step gives for the values so far."""
Hold = Callable[[int, Sequence[Any]], None]
"""Looks at the results of the step at this place."""


def called(step: PreparedCall, values: Sequence[Any]) -> Any:
    return step.call(*step.get(values))


def shaped_alone(step: PreparedCall, values: Sequence[Any]) -> Any:
    """The result of a node whose arguments have shapes and no elements."""
    if step.name not in SEQUENCES:
        return called(step, values)
    arguments = step.arguments(values)
    return tuple(arguments[0].new_empty(shape) for shape in shapes(arguments))


def form(result: Any) -> Form:
    """Raises DocumentRefused where a value has too many dimensions."""
    if not isinstance(result, Tensor):
        return int(result)
    if result.dim() > RANK_LIMIT:
        raise DocumentRefused(f"a value of {result.dim()} dimensions, more than {RANK_LIMIT}")
    return result.shape, result.dtype


def checked(_place: int, results: Sequence[Any]) -> None:
    """Raises DocumentRefused where a value has too many dimensions."""
    for result in results:
        form(result)


def noted(plan: list[list[Form]], _place: int, results: Sequence[Any]) -> None:
    """Adds the step's forms to the plan. Raises DocumentRefused where a value has too many dimensions."""
    plan.append(list(map(form, results)))


def hold_to(plan: Plan, place: int, results: Sequence[Any]) -> None:
    """Raises DocumentRefused where the results are not those that the plan has in this place."""
    found = [(result.shape, result.dtype) if isinstance(result, Tensor) else result for result in results]
    if found != plan[place]:
        raise DocumentRefused("its value is not of the shape and type that its arguments allow")


def without_elements(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same shapes and types on the device that has no elements."""
    return {name: torch.empty_like(tensor, device="meta", requires_grad=False) for name, tensor in tensors.items()}


def key_of(data: Mapping[str, Tensor]) -> tuple[torch.Size, ...]:
    """What a plan depends on; the document says everything else about its inputs."""
    return tuple(tensor.shape for tensor in data.values())
