"""The permitted arguments of each operator, checked before its kernel is called: on shapes alone, and again on real
tensors.

The kernels of a device trust arguments that pass the shape rules, and read or write beyond an array where the rules are
wrong: the needs of a kernel stand here. None means that torch's own checks, which are the same for shapes and for
tensors, are enough; that is a statement too, and `fuzz/kinds/operators.py` plays against it. An operator in no table is
refused.
"""

from typing import Final

from graphdoc.conditions import (
    division,
    elements,
    forms,
    images,
    indexing_conditions,
    loss_conditions,
    normalization_conditions,
    products,
    recurrent,
    windows,
)
from graphdoc.conditions.condition_rules import Condition, refuse_unstated

FAMILIES: Final = (
    recurrent,
    windows,
    images,
    normalization_conditions,
    loss_conditions,
    products,
    indexing_conditions,
    division,
    forms,
    elements,
)
_STATED: Final[dict[str, Condition | None]] = {
    key: condition for family in FAMILIES for key, condition in family.CONDITIONS.items()
}


def condition_of(key: str) -> Condition | None:
    """Returns the condition of an operator; one that nothing fulfils where none is stated."""
    return _STATED.get(key, refuse_unstated)
