"""Tensors from numbers, and copies. `creation.*` creates on the device of the run's tensors."""

from typing import Final

from graphdoc.operators.costs import elements, free
from graphdoc.operators.entry import Entries, aten, own

ENTRIES: Final[Entries] = {
    "creation.full": own("ints number dtype -> tensor", elements, "device"),
    "creation.arange": own("number number number dtype -> tensor", elements, "device"),
    "creation.linspace": own("number number int dtype -> tensor", elements, "device"),
    "creation.eye": own("int int dtype -> tensor", elements, "device"),
    "full_like.default": aten("tensor number dtype? none none none memory? -> tensor", elements),
    "one_hot.default": aten("tensor int -> tensor", elements),
    "copy.broadcast": own("tensor tensor -> tensor", elements),
    "to.dtype": aten("tensor dtype bool bool memory? -> tensor", elements),
    "alias.default": aten("tensor -> tensor", free),
    "detach.default": aten("tensor -> tensor", free),
    "clone.default": aten("tensor memory? -> tensor", elements),
    "contiguous.default": aten("tensor memory -> tensor", elements),
}
