"""Calls of operators, for rows apart, that none of their elements can make fail: a failure would reveal a row.

It would do so without noise: by failing the step, or by continuing in another way that takes another time. So the
nearest index in range replaces a wrong one, and operators that fail by other elements are refused from shapes alone.
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
"""The cause of an operator's failures, and its replacement."""


def build_unfailing_arguments(operator: OperatorCall, arguments: Sequence[Any]) -> Sequence[Any]:
    """Returns the arguments, in the table's order, changed so that none of their elements makes the operator fail.

    Raises DocumentRefused, by shapes and types alone, where that is impossible.
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
"""The way in which nodes get their results where each row is computed by itself."""
