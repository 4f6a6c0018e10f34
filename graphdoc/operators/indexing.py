"""Operators that select elements by integer indices. No index is trusted: see checks.py."""

from typing import Final

from graphdoc.operators.costs import differences, elements, sorting, transcendental
from graphdoc.operators.entry import Entries, aten

ENTRIES: Final[Entries] = {
    "embedding.default": aten("tensor tensor int bool false -> tensor", elements),
    "gather.default": aten("tensor int tensor false -> tensor", elements),
    "take_along_dim.default": aten("tensor tensor int? -> tensor", elements),
    "index_select.default": aten("tensor int tensor -> tensor", elements),
    "index.Tensor": aten("tensor places -> tensor", elements),
    "index_put.default": aten("tensor places tensor bool -> tensor", elements),
    "index_add.default": aten("tensor int tensor tensor number -> tensor", elements),
    "index_copy.default": aten("tensor int tensor tensor -> tensor", elements),
    "index_fill.int_Scalar": aten("tensor int tensor number -> tensor", elements),
    "scatter.src": aten("tensor int tensor tensor -> tensor", elements),
    "scatter.value": aten("tensor int tensor number -> tensor", elements),
    "scatter_add.default": aten("tensor int tensor tensor -> tensor", elements),
    "scatter_reduce.two": aten("tensor int tensor tensor sum|prod|mean|amax|amin bool -> tensor", transcendental),
    "diff.default": aten("tensor int int tensor? tensor? -> tensor", differences),
    "bucketize.Tensor": aten("tensor tensor bool bool -> tensor", sorting),
}
