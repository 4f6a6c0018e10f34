"""The parts of conditions: pure functions that refuse an operator's arguments which its kernels must not get."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphdoc.document.arguments import refuse_unless

Condition = Callable[[Sequence[Any]], None]
"""Over an operator's arguments in its table's order, tensors with or without elements. Raises DocumentRefused."""
Conditions = Mapping[str, Condition | None]
"""By operator; None where torch's own checks are the condition (see __init__)."""


def refuse_unstated(_arguments: Sequence[Any]) -> None:
    """Refuses every argument: the condition of an operator that has none in the tables."""
    refuse_unless(False, "what it may be given is not stated")


def repeat_condition(condition: Condition | None, keys: str) -> dict[str, Condition | None]:
    """Returns the same condition for every operator of a list with spaces."""
    return dict.fromkeys(keys.split(), condition)


def require_all(*conditions: Condition) -> Condition:
    """Returns the condition that all of these hold."""

    def condition(arguments: Sequence[Any]) -> None:
        for one in conditions:
            one(arguments)

    return condition


def require_range(place: int, least: float, most: float, subject: str) -> Condition:
    """Requires the number at this place to be in the range; null is allowed where the type allows it."""

    def condition(arguments: Sequence[Any]) -> None:
        value = arguments[place]
        refuse_unless(value is None or least <= value <= most, f"{subject} is not in {least} to {most}")

    return condition


def require_floating(*places: int) -> Condition:
    """Requires the tensors at these places, or in lists there, to be floats of one type; nulls do not count."""

    def condition(arguments: Sequence[Any]) -> None:
        one_float_type([arguments[place] for place in places])

    return condition


def one_float_type(tensors: Sequence[Any]) -> None:
    """Raises DocumentRefused unless all are floats of one type; nulls do not count."""
    dtypes = {tensor.dtype for tensor in tensors if tensor is not None}
    refuse_unless(len(dtypes) <= 1, "its tensors are of several element types")
    refuse_unless(all(dtype.is_floating_point for dtype in dtypes), "its tensors are not floats")


def check_tensor_shape(tensor: Any, shape: Sequence[int], subject: str) -> None:
    """Raises DocumentRefused unless the tensor, where there is one, has exactly this shape."""
    fits = tensor is None or tuple(tensor.shape) == tuple(shape)
    refuse_unless(fits, f"{subject} is not of shape {list(shape)}")


def check_has_elements(tensor: Any, subject: str) -> None:
    """Raises DocumentRefused where a tensor has no elements."""
    refuse_unless(tensor.numel() > 0, f"{subject} has no elements")


def check_tensor_rank(tensor: Any, ranks: Sequence[int], subject: str) -> None:
    """Raises DocumentRefused unless the tensor has one of these numbers of dimensions."""
    wanted = " or ".join(map(str, ranks))
    refuse_unless(len(tensor.shape) in ranks, f"{subject} has not {wanted} dimensions")
