"""Linear algebra."""

from typing import Final

from graphdoc.operators.costs import (
    added_contraction,
    count_bilinear,
    count_contraction,
    count_distances,
    count_einsum,
    count_elements,
    summed_contraction,
)
from graphdoc.operators.entry import Entries, aten

ENTRIES: Final[Entries] = {
    "linear.default": aten("tensor tensor tensor? -> tensor", count_contraction),
    "matmul.default": aten("tensor tensor -> tensor", count_contraction),
    "mm.default": aten("tensor tensor -> tensor", count_contraction),
    "bmm.default": aten("tensor tensor -> tensor", count_contraction),
    "mv.default": aten("tensor tensor -> tensor", count_contraction),
    "dot.default": aten("tensor tensor -> tensor", count_contraction),
    "outer.default": aten("tensor tensor -> tensor", count_elements),
    "addmm.default": aten("tensor tensor tensor number number -> tensor", added_contraction),
    "baddbmm.default": aten("tensor tensor tensor number number -> tensor", added_contraction),
    "addbmm.default": aten("tensor tensor tensor number number -> tensor", summed_contraction),
    "bilinear.default": aten("tensor tensor tensor tensor? -> tensor", count_bilinear),
    "einsum.default": aten("equation tensors ints? -> tensor", count_einsum),
    "cdist.default": aten("tensor tensor float int? -> tensor", count_distances),
    "linalg_cross.default": aten("tensor tensor int -> tensor", count_elements),
}
