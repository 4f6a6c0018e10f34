"""What the tables of this folder are made of. No torch: shapes are read from whatever has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gradmarket.market.model.document.operators.costs import Cost

Extra = Literal["seed", "device"]
"""What an operator of our own is given besides its arguments: the microbatch's seed, or where the tensors lie."""


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
    """The ATen operator of the key's name and overload, with every argument of its schema in order."""
    return _entry(types, cost, own=False, extra=None)


def own(types: str, cost: Cost, extra: Extra | None = None) -> OperatorEntry:
    """An operator that stands in kernels.py."""
    return _entry(types, cost, own=True, extra=extra)


def _entry(types: str, cost: Cost, own: bool, extra: Extra | None) -> OperatorEntry:
    arguments, _, results = types.partition("->")
    return OperatorEntry(tuple(arguments.split()), tuple(results.split()), cost, own, extra)
