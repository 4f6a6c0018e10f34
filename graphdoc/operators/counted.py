"""Where a scan's counter may stand: arguments, by place, on which no result's shape and no cost depends.

A slice's length may depend on its ends; it is never more than the tensor has, and one of another shape than in the
first step is refused before it is read.
"""

from typing import Final

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
