"""The operators that documents may use, with their types and costs. A new one is one line of its family.

A key is looked up in `ALLOWED` only. `aten(…)` is the ATen operator of the key's name and overload, with every argument
of its schema in order; the operators of `own(…)` are in kernels.py. No operator writes to its arguments, draws from a
generator or returns uninitialised memory: a document is a pure function.

Types: tensor, tensors (a list), places (a list of tensors and nulls), operand (a tensor or a number), int (may refer to
an integer value), ints, float, floats, number (an int or a float), bool, dtype, memory (a memory format), equation (of
einsum), none, true, false, zero (always that constant), a|b (one of these words); `?` allows null.
"""

from collections.abc import Mapping
from typing import Final

from graphdoc.operators import element_operators, layer_operators
from graphdoc.operators.entry import Entries, OperatorEntry

FAMILIES: Final[Mapping[str, Entries]] = {**layer_operators.FAMILIES, **element_operators.FAMILIES}
ALLOWED: Final[dict[str, OperatorEntry]] = {key: entry for family in FAMILIES.values() for key, entry in family.items()}
"""The allow-list."""
