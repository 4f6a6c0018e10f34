"""Reductions: sums, extremes, orders, running sums."""

from typing import Final

from graphdoc.operators.costs import elements, sorting, transcendental
from graphdoc.operators.entry import Entries, aten

ENTRIES: Final[Entries] = {
    "sum.default": aten("tensor dtype? -> tensor", elements),
    "sum.dim_IntList": aten("tensor ints? bool dtype? -> tensor", elements),
    "mean.default": aten("tensor dtype? -> tensor", elements),
    "mean.dim": aten("tensor ints? bool dtype? -> tensor", elements),
    "prod.default": aten("tensor dtype? -> tensor", elements),
    "prod.dim_int": aten("tensor int bool dtype? -> tensor", elements),
    "var.default": aten("tensor bool -> tensor", transcendental),
    "var.dim": aten("tensor ints? bool bool -> tensor", transcendental),
    "var.correction": aten("tensor ints? number? bool -> tensor", transcendental),
    "std.default": aten("tensor bool -> tensor", transcendental),
    "std.dim": aten("tensor ints? bool bool -> tensor", transcendental),
    "std.correction": aten("tensor ints? number? bool -> tensor", transcendental),
    "var_mean.correction": aten("tensor ints? number? bool -> tensor tensor", transcendental),
    "norm.Scalar": aten("tensor number -> tensor", transcendental),
    "norm.ScalarOpt_dim": aten("tensor number? ints bool -> tensor", transcendental),
    "linalg_vector_norm.default": aten("tensor number ints? bool dtype? -> tensor", transcendental),
    "logsumexp.default": aten("tensor ints bool -> tensor", transcendental),
    "cumsum.default": aten("tensor int dtype? -> tensor", elements),
    "cumprod.default": aten("tensor int dtype? -> tensor", transcendental),
    "logcumsumexp.default": aten("tensor int -> tensor", transcendental),
    "amax.default": aten("tensor ints bool -> tensor", elements),
    "amin.default": aten("tensor ints bool -> tensor", elements),
    "max.default": aten("tensor -> tensor", elements),
    "max.dim": aten("tensor int bool -> tensor tensor", elements),
    "min.default": aten("tensor -> tensor", elements),
    "min.dim": aten("tensor int bool -> tensor tensor", elements),
    "argmax.default": aten("tensor int? bool -> tensor", elements),
    "argmin.default": aten("tensor int? bool -> tensor", elements),
    "any.default": aten("tensor -> tensor", elements),
    "any.dim": aten("tensor int bool -> tensor", elements),
    "all.default": aten("tensor -> tensor", elements),
    "all.dim": aten("tensor int bool -> tensor", elements),
    "topk.default": aten("tensor int int bool bool -> tensor tensor", sorting),
    "sort.default": aten("tensor int bool -> tensor tensor", sorting),
    "sort.stable": aten("tensor bool? int bool -> tensor tensor", sorting),
    "argsort.default": aten("tensor int bool -> tensor", sorting),
}
