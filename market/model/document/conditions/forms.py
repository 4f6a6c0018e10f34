"""Numbers that say a shape: what torch's shape rules take on trust."""

from collections.abc import Sequence
from typing import Any, Final

from gradmarket.market.model.document.arguments import refuse_unless
from gradmarket.market.model.document.conditions.rules import Condition, Conditions, between, each


def _counted(place: int) -> Condition:
    """Pieces or repeats: from nothing on."""
    return between(place, 0, 2**31 - 1, "a count")


def _sizes(arguments: Sequence[Any]) -> None:
    refuse_unless(all(size >= 0 for size in arguments[0]), "a size is negative")


def _even(arguments: Sequence[Any]) -> None:
    """repeat_interleave's last argument says how long the result is: none but the right one."""
    tensor, repeats, dimension, said = arguments
    refuse_unless(repeats >= 0, "a count is negative")
    length = tensor.numel() if dimension is None or not len(tensor.shape) else tensor.shape[dimension]
    refuse_unless(said is None or said == length * repeats, "the size that it says is not its own")


CONDITIONS: Final[Conditions] = {
    "repeat_interleave.self_int": _even,
    "creation.full": _sizes,
    **each(
        None,
        "view.default _unsafe_view.default unflatten.int transpose.int swapaxes.default permute.default movedim.int "
        "movedim.intlist t.default mT.default numpy_T.default unsqueeze.default squeeze.default squeeze.dim "
        "squeeze.dims reshape.default flatten.using_ints view_as.default reshape_as.default ravel.default "
        "expand.default expand_as.default broadcast_tensors.default broadcast_to.default repeat.default tile.default "
        "slice.Tensor narrow.default select.int unfold.default diagonal.default diag_embed.default "
        "slice_scatter.default select_scatter.default diagonal_scatter.default cat.default concat.default "
        "stack.default hstack.default vstack.default meshgrid.indexing split.Tensor split_with_sizes.default "
        "tensor_split.sections chunk.default unbind.int roll.default flip.default rot90.default tril.default "
        "triu.default creation.arange creation.linspace creation.eye full_like.default copy.broadcast to.dtype "
        "alias.default detach.default clone.default contiguous.default",
    ),
}
