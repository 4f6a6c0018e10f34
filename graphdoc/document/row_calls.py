"""Calls of operators that no element of theirs can make fail, for rows apart: a failure would tell of a row.

It would tell without noise, whether the step fails or goes on in another way, which takes another time. So an index is
taken to be the nearest in its range, and operators that fail by other elements are refused from shapes alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from torch import Tensor

from graphdoc.conditions import division
from graphdoc.document.arguments import refuse_unless
from graphdoc.document.calls import OperatorCall
from graphdoc.document.checks import clamp_indices
from graphdoc.document.interpret import Way
from graphdoc.document.plans import call_operator
from graphdoc.document.prepare import PreparedCall
from graphdoc.document.scans import every_step

FAILING: Final[Mapping[str, str]] = {
    "binary_cross_entropy.default": "a number beyond 0 and 1: use binary_cross_entropy_with_logits",
}
"""What makes an operator fail, and what to use in its place."""


def build_unfailing_arguments(operator: OperatorCall, arguments: Sequence[Any]) -> Sequence[Any]:
    """Returns the arguments, in the table's order, so that none of their elements makes the operator fail.

    Raises DocumentRefused, by shapes and types alone, where that cannot be.
    """
    why = FAILING.get(operator.key)
    refuse_unless(why is None, f"it fails for {why}")
    if operator.key in division.CONDITIONS and division.of_integers(arguments):
        whole = not isinstance(arguments[1], Tensor) and arguments[1] not in (0, -1)
        refuse_unless(whole, "whole numbers are divided by what may be 0 or -1, which fails: divide floats")
    return arguments if operator.indices is None else clamp_indices(operator.indices, arguments)


def _call_unfailing(step: PreparedCall, values: Sequence[Any]) -> Any:
    operator = step.operator
    arguments = build_unfailing_arguments(operator, step.arguments(values))
    if operator.indices is None:
        return call_operator(step, values)
    named = {name: arguments[place] for place, name in operator.keywords.items()}
    return operator.call(*(value for place, value in enumerate(arguments) if place not in operator.keywords), **named)


BY_ROWS: Final = Way(_call_unfailing, every_step)
"""How nodes get their results where each row is computed by itself."""
