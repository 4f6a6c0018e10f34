"""What each operator may be given, stated before its kernel is called: on shapes alone, and again on real tensors.

The kernels of a device trust what the shape rules let by, and read or write beyond an array where those are wrong: what
a kernel needs stands here. None means that torch's own checks, which are the same for shapes and for tensors, are
enough; that is a statement too, and `fuzz/kinds/operators.py` plays against it. What stands in no table is refused.
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
    padding,
    products,
    recurrent,
    windows,
)
from graphdoc.conditions.condition_rules import Condition, refuse_unstated

FAMILIES: Final = (
    recurrent,
    windows,
    images,
    padding,
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
    """The condition of an operator; one that nothing fulfils where none is stated."""
    return _STATED.get(key, refuse_unstated)
