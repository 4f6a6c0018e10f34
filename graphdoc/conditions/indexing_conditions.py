"""Elements that integers point at: the integers' type and shape. checks.py and the kernels check their range."""

from collections.abc import Sequence
from typing import Any, Final

from graphdoc.conditions.condition_rules import (
    Conditions,
    check_tensor_rank,
    check_tensor_shape,
    repeat_condition,
    require_all,
)
from graphdoc.document.arguments import refuse_unless


def place_of(dimension: int, rank: int) -> int:
    """Returns the dimension counted from the first. Raises DocumentRefused where none has this number."""
    refuse_unless(-max(rank, 1) <= dimension < max(rank, 1), f"there is no dimension {dimension}")
    return dimension % max(rank, 1)


def _check_index_type(indices: Any) -> None:
    dtype = indices.dtype
    refuse_unless(not dtype.is_floating_point and dtype.itemsize >= 4, "its indices are not integers of 4 or 8 bytes")


def _check_embedding(arguments: Sequence[Any]) -> None:
    table, indices, padding = arguments[:3]
    check_tensor_rank(table, (2,), "its table")
    _check_index_type(indices)
    refuse_unless(-table.shape[0] - 1 <= padding < table.shape[0], "its padding is no row of its table")


def _check_indices_along(arguments: Sequence[Any]) -> None:
    """Checks (tensor, dimension, indices, …): of as many dimensions, and none longer but the indexed one."""
    tensor, dimension, indices = arguments[:3]
    along = place_of(dimension, len(tensor.shape))
    _check_index_type(indices)
    if not len(tensor.shape) or not len(indices.shape):
        return
    refuse_unless(len(indices.shape) == len(tensor.shape), "its indices are of other dimensions")
    pairs = enumerate(zip(indices.shape, tensor.shape, strict=True))
    refuse_unless(all(place == along or one <= size for place, (one, size) in pairs), "its indices are too many")


def _check_scatter(arguments: Sequence[Any]) -> None:
    """(tensor, dimension, indices, source, …)."""
    _check_indices_along(arguments)
    tensor, _, indices, source = arguments[:4]
    refuse_unless(source.dtype == tensor.dtype, "its source is of another type")
    if not len(source.shape) or not len(indices.shape):
        return
    fits = len(source.shape) == len(indices.shape)
    fits = fits and all(one <= size for one, size in zip(indices.shape, source.shape, strict=True))
    refuse_unless(fits, "its source is smaller than its indices")


def _check_index_select(arguments: Sequence[Any]) -> None:
    """(tensor, dimension, indices in one line, …)."""
    tensor, dimension, indices = arguments[:3]
    place_of(dimension, len(tensor.shape))
    _check_index_type(indices)
    check_tensor_rank(indices, (0, 1), "its indices")


def _check_indexed_source(arguments: Sequence[Any]) -> None:
    """(tensor, dimension, indices in one line, source, …)."""
    _check_index_select(arguments)
    tensor, dimension, indices, source = arguments[:4]
    refuse_unless(source.dtype == tensor.dtype, "its source is of another type")
    wanted = list(tensor.shape)
    if wanted:
        wanted[place_of(dimension, len(wanted))] = indices.numel()
        check_tensor_shape(source, wanted, "its source")
    else:
        refuse_unless(source.numel() == indices.numel() == 1, "its source is not one number")


def _check_index_places(arguments: Sequence[Any]) -> None:
    """(tensor, indices or null for each dimension, …); a mask is of the dimensions that it stands for."""
    tensor, places = arguments[:2]
    refuse_unless(any(place is not None for place in places), "it has no index")
    dimension = 0
    for place in places:
        masks = place is not None and place.dtype.itemsize == 1
        if masks:
            refuse_unless(not place.dtype.is_floating_point and str(place.dtype) == "torch.bool", "a mask is not bool")
            check_tensor_shape(place, tensor.shape[dimension : dimension + len(place.shape)], "a mask")
            refuse_unless(len(place.shape) > 0, "a mask has no dimensions")
        elif place is not None:
            _check_index_type(place)
        dimension += len(place.shape) if masks else 1
    refuse_unless(dimension <= len(tensor.shape), "it has more indices than dimensions")


def _check_take(arguments: Sequence[Any]) -> None:
    tensor, indices, dimension = arguments
    _check_index_type(indices)
    if dimension is not None:
        place_of(dimension, len(tensor.shape))


def _check_one_hot(arguments: Sequence[Any]) -> None:
    indices, classes = arguments
    refuse_unless(str(indices.dtype) == "torch.int64", "its classes are not int64")
    refuse_unless(classes >= 1, "its number of classes is not stated")


CONDITIONS: Final[Conditions] = {
    "embedding.default": _check_embedding,
    "gather.default": _check_indices_along,
    "take_along_dim.default": _check_take,
    **repeat_condition(_check_index_select, "index_select.default index_fill.int_Scalar"),
    **repeat_condition(_check_indexed_source, "index_add.default index_copy.default"),
    "index.Tensor": _check_index_places,
    "index_put.default": require_all(
        _check_index_places,
        lambda arguments: refuse_unless(arguments[2].dtype == arguments[0].dtype, "what is put is of another type"),
    ),
    "scatter.value": _check_indices_along,
    **repeat_condition(_check_scatter, "scatter.src scatter_add.default scatter_reduce.two"),
    "bucketize.Tensor": lambda arguments: check_tensor_rank(arguments[1], (1,), "its boundaries"),
    "one_hot.default": _check_one_hot,
    "diff.default": None,
}
