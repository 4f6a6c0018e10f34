"""Reductions: sums, extremes, orders, running sums."""

from typing import Final

from graphdoc.operators.costs import count_elements, count_sorting, count_transcendental
from graphdoc.operators.entry import Entries, aten

ENTRIES: Final[Entries] = {
    "sum.default": aten("tensor dtype? -> tensor", count_elements),
    "sum.dim_IntList": aten("tensor ints? bool dtype? -> tensor", count_elements),
    "mean.default": aten("tensor dtype? -> tensor", count_elements),
    "mean.dim": aten("tensor ints? bool dtype? -> tensor", count_elements),
    "prod.default": aten("tensor dtype? -> tensor", count_elements),
    "prod.dim_int": aten("tensor int bool dtype? -> tensor", count_elements),
    "var.default": aten("tensor bool -> tensor", count_transcendental),
    "var.dim": aten("tensor ints? bool bool -> tensor", count_transcendental),
    "var.correction": aten("tensor ints? number? bool -> tensor", count_transcendental),
    "std.default": aten("tensor bool -> tensor", count_transcendental),
    "std.dim": aten("tensor ints? bool bool -> tensor", count_transcendental),
    "std.correction": aten("tensor ints? number? bool -> tensor", count_transcendental),
    "var_mean.correction": aten("tensor ints? number? bool -> tensor tensor", count_transcendental),
    "norm.Scalar": aten("tensor number -> tensor", count_transcendental),
    "norm.ScalarOpt_dim": aten("tensor number? ints bool -> tensor", count_transcendental),
    "linalg_vector_norm.default": aten("tensor number ints? bool dtype? -> tensor", count_transcendental),
    "logsumexp.default": aten("tensor ints bool -> tensor", count_transcendental),
    "cumsum.default": aten("tensor int dtype? -> tensor", count_elements),
    "cumprod.default": aten("tensor int dtype? -> tensor", count_transcendental),
    "logcumsumexp.default": aten("tensor int -> tensor", count_transcendental),
    "amax.default": aten("tensor ints bool -> tensor", count_elements),
    "amin.default": aten("tensor ints bool -> tensor", count_elements),
    "max.default": aten("tensor -> tensor", count_elements),
    "max.dim": aten("tensor int bool -> tensor tensor", count_elements),
    "min.default": aten("tensor -> tensor", count_elements),
    "min.dim": aten("tensor int bool -> tensor tensor", count_elements),
    "argmax.default": aten("tensor int? bool -> tensor", count_elements),
    "argmin.default": aten("tensor int? bool -> tensor", count_elements),
    "any.default": aten("tensor -> tensor", count_elements),
    "any.dim": aten("tensor int bool -> tensor", count_elements),
    "all.default": aten("tensor -> tensor", count_elements),
    "all.dim": aten("tensor int bool -> tensor", count_elements),
    "topk.default": aten("tensor int int bool bool -> tensor tensor", count_sorting),
    "sort.default": aten("tensor int bool -> tensor tensor", count_sorting),
    "sort.stable": aten("tensor bool? int bool -> tensor tensor", count_sorting),
    "argsort.default": aten("tensor int bool -> tensor", count_sorting),
}
