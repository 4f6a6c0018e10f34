"""Numbers that determine a shape and that torch's shape rules do not check: lengths, counts and borders."""

from collections.abc import Sequence
from typing import Any, Final

from graphdoc.conditions.condition_rules import Conditions, check_has_elements, repeat_condition
from graphdoc.conditions.indexing_conditions import place_of
from graphdoc.document.arguments import refuse_unless

PARTS_LIMIT: Final = 100_000
"""The most parts into which one node cuts a tensor: a document has no more values."""


def _check_part_count(count: int) -> None:
    refuse_unless(0 <= count <= PARTS_LIMIT, f"a tensor in {count} parts, more than {PARTS_LIMIT}")


def _compute_length(tensor: Any, dimension: int) -> int:
    return int(tensor.shape[place_of(dimension, len(tensor.shape))]) if len(tensor.shape) else 1


def _check_part_length(arguments: Sequence[Any]) -> None:
    """Checks (tensor, length of each part, dimension)."""
    tensor, size, dimension = arguments
    length = _compute_length(tensor, dimension)
    refuse_unless(size >= 1 or length == 0, "its parts have no length")
    _check_part_count(-(-length // max(1, size)))


def _check_division_count(arguments: Sequence[Any]) -> None:
    """Checks (tensor, number of parts, dimension)."""
    refuse_unless(arguments[1] >= 1, "it is divided into nothing")
    _check_part_count(arguments[1])


def _check_repeats(arguments: Sequence[Any]) -> None:
    """Checks repeat_interleave, whose last argument must be null or the length of the result."""
    tensor, repeats, dimension, output_size = arguments
    refuse_unless(repeats >= 0, "a count is negative")
    length = tensor.numel() if dimension is None or not len(tensor.shape) else tensor.shape[dimension]
    refuse_unless(output_size is None or output_size == length * repeats, "the size that it says is not its own")


def _check_constant_pad(arguments: Sequence[Any]) -> None:
    """(tensor, pairs from the last dimension on, …): a negative side cuts, but leaves something."""
    tensor, sides = arguments[:2]
    refuse_unless(len(sides) % 2 == 0 and len(sides) // 2 <= len(tensor.shape), "its sides are no pairs of dimensions")
    for before, after, size in zip(sides[::2], sides[1::2], reversed(tensor.shape), strict=False):
        refuse_unless(min(before, after) >= -size, "a side is cut by more than there is")
        refuse_unless(size + before + after >= 0, "a dimension is cut to less than nothing")


def _check_pad(arguments: Sequence[Any]) -> None:
    tensor, sides, mode, value = arguments
    _check_constant_pad(arguments)
    if mode == "constant":
        return
    refuse_unless(value is None or value == 0, "a value where the border is copied")
    check_has_elements(tensor, "its tensor")
    refuse_unless(len(sides) in (2, 4, 6) and len(tensor.shape) - len(sides) // 2 in (1, 2), "its sides are no image's")
    for before, after, size in zip(sides[::2], sides[1::2], reversed(tensor.shape), strict=False):
        most = {"reflect": size - 1, "circular": size}.get(mode)
        refuse_unless(min(before, after) >= 0, "a side is negative where the border is copied")
        refuse_unless(most is None or max(before, after) <= most, "a side is longer than what is copied")


CONDITIONS: Final[Conditions] = {
    "pad.default": _check_pad,
    "constant_pad_nd.default": _check_constant_pad,
    "repeat_interleave.self_int": _check_repeats,
    "creation.full": lambda arguments: refuse_unless(all(size >= 0 for size in arguments[0]), "a size is negative"),
    "split.Tensor": _check_part_length,
    **repeat_condition(_check_division_count, "chunk.default tensor_split.sections"),
    "unbind.int": lambda arguments: _check_part_count(_compute_length(*arguments)),
    **repeat_condition(
        None,
        "view.default _unsafe_view.default unflatten.int transpose.int swapaxes.default permute.default movedim.int "
        "movedim.intlist t.default mT.default numpy_T.default unsqueeze.default squeeze.default squeeze.dim "
        "squeeze.dims reshape.default flatten.using_ints view_as.default reshape_as.default ravel.default "
        "expand.default expand_as.default broadcast_tensors.default broadcast_to.default repeat.default tile.default "
        "slice.Tensor narrow.default select.int unfold.default diagonal.default diag_embed.default "
        "slice_scatter.default select_scatter.default diagonal_scatter.default cat.default concat.default "
        "stack.default hstack.default vstack.default meshgrid.indexing split_with_sizes.default "
        "roll.default flip.default rot90.default tril.default "
        "triu.default creation.arange creation.linspace creation.eye full_like.default copy.broadcast to.dtype "
        "alias.default detach.default clone.default contiguous.default",
    ),
}
