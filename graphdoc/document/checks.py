"""Checks indices before use on devices that would not: on a GPU a wrong index ends the process.

The CPU's kernels check every index themselves and raise an error. Where an error itself would reveal a row, the nearest
index in range replaces a wrong one (`clamp_indices`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from graphdoc.errors import DocumentRefused

Range = tuple[Tensor, int, int]
"""Indices, the least allowed one, and the first above it that is not allowed."""
Rule = Callable[[Sequence[Any]], Iterable[Range]]
LABELS: Final = 4
"""Position of the ignored label among the arguments of a loss over classes."""


def check_indices(rule: Rule, arguments: Sequence[Any]) -> None:
    """Raises DocumentRefused where an index is out of range."""
    for indices, least, end in rule(arguments):
        if indices.numel() and not bool(((indices >= least) & (indices < end)).all()):
            raise DocumentRefused(f"an index is not in {least} to {end - 1}")


def clamp_indices(rule: Rule, arguments: Sequence[Any]) -> list[Any]:
    """Returns the arguments with the nearest index in range for one that is not; ignored labels stay.

    Raises DocumentRefused where the range is empty.
    """
    found: dict[int, Tensor] = {}
    given = [part for value in arguments for part in (value if isinstance(value, list | tuple) else (value,))]
    for indices, least, end in rule(arguments):
        if indices.numel() and end <= least:
            raise DocumentRefused("there is nothing that an index could point at")
        label = not any(value is indices for value in given)  # a loss, whose rule yields a masked copy
        read = arguments[1] if label else indices
        held = indices if label else found.get(id(read), read)
        within = held.clamp(least, min(end - 1, torch.iinfo(held.dtype).max))
        found[id(read)] = torch.where(read == arguments[LABELS], read, within) if label else within
    return [_exchange_indices(value, found) for value in arguments]


def _exchange_indices(value: Any, found: Mapping[int, Tensor]) -> Any:
    """Returns the tensor found for a given one, or a list with all its tensors so replaced; anything else unchanged."""
    if isinstance(value, list | tuple):
        return [_exchange_indices(part, found) for part in value]
    return found.get(id(value), value)


def _list_range_along(arguments: Sequence[Any]) -> Iterator[Range]:
    """Yields the range of indices along a dimension, from arguments (tensor, dimension, indices, …)."""
    tensor, dimension, indices = arguments[:3]
    yield indices, 0, tensor.shape[dimension] if tensor.dim() else 1


def _list_take_range(arguments: Sequence[Any]) -> Iterator[Range]:
    tensor, indices, dimension = arguments
    yield indices, 0, tensor.numel() if dimension is None else tensor.shape[dimension]


def _list_place_ranges(arguments: Sequence[Any]) -> Iterator[Range]:
    """Yields the ranges from arguments (tensor, one tensor of indices or null for each dimension, …).

    A mask takes up as many dimensions as it has.
    """
    tensor, places = arguments[:2]
    dimension = 0
    for place in places:
        if place is None or place.dtype in (torch.bool, torch.uint8):
            dimension += 1 if place is None else place.dim()
            continue
        yield place, -tensor.shape[dimension], tensor.shape[dimension]
        dimension += 1


def _build_target_rule(ignored: int) -> Rule:
    """Returns the rule for arguments (scores, target, …).

    `ignored` is the position of the ignored label.
    """

    def rule(arguments: Sequence[Any]) -> Iterator[Range]:
        scores, target = arguments[:2]
        if not target.is_floating_point():
            counted = target.masked_fill(target == arguments[ignored], 0)
            yield counted, 0, scores.shape[1 if scores.dim() > 1 else 0]

    return rule


RULES: Final[dict[str, Rule]] = {
    "embedding.default": lambda arguments: [(arguments[1], 0, arguments[0].shape[0])],
    **dict.fromkeys(
        ("gather.default", "index_select.default", "index_add.default", "index_copy.default"), _list_range_along
    ),
    **dict.fromkeys(
        ("index_fill.int_Scalar", "scatter.src", "scatter.value", "scatter_add.default"), _list_range_along
    ),
    "scatter_reduce.two": _list_range_along,
    "take_along_dim.default": _list_take_range,
    **dict.fromkeys(("index.Tensor", "index_put.default"), _list_place_ranges),
    "one_hot.default": lambda arguments: [(arguments[0], 0, arguments[1])],
    "cross_entropy_loss.default": _build_target_rule(LABELS),
    **dict.fromkeys(("nll_loss.default", "nll_loss_nd.default"), _build_target_rule(LABELS)),
}
