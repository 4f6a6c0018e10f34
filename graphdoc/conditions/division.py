"""Integer division: the least integer divided by minus one, or anything by zero, ends the process on many machines."""

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from graphdoc.conditions.condition_rules import Conditions, repeat_condition
from graphdoc.document.arguments import refuse_unless


def _check_division(arguments: Sequence[Any]) -> None:
    """Checks (dividend, divisor, …), each a tensor or a number; elements are read where there are any."""
    above, below = arguments[:2]
    refuse_unless(isinstance(above, Tensor) or isinstance(below, Tensor), "it divides no tensor")
    if not of_integers(arguments):
        return
    common = torch.result_type(above, below)
    refuse_unless(not _any_is(below, 0, common), "an integer is divided by zero")
    least = _any_is(below, -1, common) and _any_is(above, torch.iinfo(common).min, common)
    refuse_unless(not least, "the least integer is divided by minus one")


def of_integers(arguments: Sequence[Any]) -> bool:
    """Returns whether a division is one of integers, which may fail by its elements."""
    common = torch.result_type(*arguments[:2])
    return not common.is_floating_point and common != torch.bool


def _any_is(value: Any, sought: int, common: torch.dtype) -> bool:
    """Returns whether any element, converted to the common type, equals the value."""
    if isinstance(value, Tensor):
        return not value.is_meta and bool((value.detach().to(common) == sought).any())
    return bool(torch.tensor(value).to(common) == sought)


CONDITIONS: Final[Conditions] = repeat_condition(
    _check_division,
    "div.Tensor_mode div.Scalar_mode floor_divide.default remainder.Scalar remainder.Tensor fmod.Scalar",
)
