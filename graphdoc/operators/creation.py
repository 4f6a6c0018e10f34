"""Tensors from numbers, and copies. `creation.*` creates on the device of the run's tensors."""

from typing import Final

from graphdoc.operators.costs import count_elements, count_free
from graphdoc.operators.entry import Entries, aten, own

ENTRIES: Final[Entries] = {
    "creation.full": own("ints number dtype -> tensor", count_elements, "device"),
    "creation.arange": own("number number number dtype -> tensor", count_elements, "device"),
    "creation.linspace": own("number number int dtype -> tensor", count_elements, "device"),
    "creation.eye": own("int int dtype -> tensor", count_elements, "device"),
    "full_like.default": aten("tensor number dtype? none none none memory? -> tensor", count_elements),
    "one_hot.default": aten("tensor int -> tensor", count_elements),
    "copy.broadcast": own("tensor tensor -> tensor", count_elements),
    "to.dtype": aten("tensor dtype bool bool memory? -> tensor", count_elements),
    "alias.default": aten("tensor -> tensor", count_free),
    "detach.default": aten("tensor -> tensor", count_free),
    "clone.default": aten("tensor memory? -> tensor", count_elements),
    "contiguous.default": aten("tensor memory -> tensor", count_elements),
}
