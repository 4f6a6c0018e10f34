"""The entries of this folder's tables. No torch: shapes are read from any object that has them.

A scan's counter may stand in place of arguments on which no result's shape and no cost depends. A slice's length may
depend on its ends; it is never more than the tensor has, and one of another shape than in the first step is refused
before it is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from graphdoc.operators.costs import Cost

Extra = Literal["seed", "device"]
"""An extra argument of our own operators: the microbatch's seed, or the device of the tensors."""


@dataclass(frozen=True)
class OperatorEntry:
    """The argument types of one operator in order, the types of its results, and its cost rule."""

    arguments: tuple[str, ...]
    results: tuple[str, ...]
    cost: Cost
    own: bool
    extra: Extra | None

    @property
    def gives_list(self) -> bool:
        return self.results == ("tensors",)


Entries = Mapping[str, OperatorEntry]


def aten(types: str, cost: Cost) -> OperatorEntry:
    """Returns the entry of the ATen operator with the key's name and overload, with every schema argument in order."""
    return _build_entry(types, cost, own=False, extra=None)


def own(types: str, cost: Cost, extra: Extra | None = None) -> OperatorEntry:
    """Returns the entry of an operator in kernels.py."""
    return _build_entry(types, cost, own=True, extra=extra)


def _build_entry(types: str, cost: Cost, own: bool, extra: Extra | None) -> OperatorEntry:
    arguments, _, results = types.partition("->")
    return OperatorEntry(tuple(arguments.split()), tuple(results.split()), cost, own, extra)


COUNTED: Final[dict[str, tuple[int, ...]]] = {
    "select.int": (2,),
    "slice.Tensor": (2, 3),
    "narrow.default": (2,),
    "select_scatter.default": (3,),
    "slice_scatter.default": (3, 4),
    **dict.fromkeys(("add.Tensor", "sub.Tensor", "mul.Tensor"), (1,)),
    **dict.fromkeys(("dropout.hash", "dropout.feature", "dropout.alpha"), (2,)),
    **dict.fromkeys(("chance.uniform", "chance.normal", "chance.bernoulli"), (2,)),
    "attention.dropout": (8,),
}
"""By operator."""
