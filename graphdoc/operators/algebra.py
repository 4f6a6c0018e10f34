"""Linear algebra."""

from typing import Final

from graphdoc.operators.costs import (
    added_contraction,
    bilinear,
    contraction,
    distances,
    einsum,
    elements,
    summed_contraction,
)
from graphdoc.operators.entry import Entries, aten

ENTRIES: Final[Entries] = {
    "linear.default": aten("tensor tensor tensor? -> tensor", contraction),
    "matmul.default": aten("tensor tensor -> tensor", contraction),
    "mm.default": aten("tensor tensor -> tensor", contraction),
    "bmm.default": aten("tensor tensor -> tensor", contraction),
    "mv.default": aten("tensor tensor -> tensor", contraction),
    "dot.default": aten("tensor tensor -> tensor", contraction),
    "outer.default": aten("tensor tensor -> tensor", elements),
    "addmm.default": aten("tensor tensor tensor number number -> tensor", added_contraction),
    "baddbmm.default": aten("tensor tensor tensor number number -> tensor", added_contraction),
    "addbmm.default": aten("tensor tensor tensor number number -> tensor", summed_contraction),
    "bilinear.default": aten("tensor tensor tensor tensor? -> tensor", bilinear),
    "einsum.default": aten("equation tensors ints? -> tensor", einsum),
    "cdist.default": aten("tensor tensor float int? -> tensor", distances),
    "linalg_cross.default": aten("tensor tensor int -> tensor", elements),
}
