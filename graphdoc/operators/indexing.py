"""Operators that select elements by integer indices. No index is trusted: see checks.py."""

from typing import Final

from graphdoc.operators.costs import count_differences, count_elements, count_sorting, count_transcendental
from graphdoc.operators.entry import Entries, aten

ENTRIES: Final[Entries] = {
    "embedding.default": aten("tensor tensor int bool false -> tensor", count_elements),
    "gather.default": aten("tensor int tensor false -> tensor", count_elements),
    "take_along_dim.default": aten("tensor tensor int? -> tensor", count_elements),
    "index_select.default": aten("tensor int tensor -> tensor", count_elements),
    "index.Tensor": aten("tensor places -> tensor", count_elements),
    "index_put.default": aten("tensor places tensor bool -> tensor", count_elements),
    "index_add.default": aten("tensor int tensor tensor number -> tensor", count_elements),
    "index_copy.default": aten("tensor int tensor tensor -> tensor", count_elements),
    "index_fill.int_Scalar": aten("tensor int tensor number -> tensor", count_elements),
    "scatter.src": aten("tensor int tensor tensor -> tensor", count_elements),
    "scatter.value": aten("tensor int tensor number -> tensor", count_elements),
    "scatter_add.default": aten("tensor int tensor tensor -> tensor", count_elements),
    "scatter_reduce.two": aten("tensor int tensor tensor sum|prod|mean|amax|amin bool -> tensor", count_transcendental),
    "diff.default": aten("tensor int int tensor? tensor? -> tensor", count_differences),
    "bucketize.Tensor": aten("tensor tensor bool bool -> tensor", count_sorting),
}
