"""One node alone: forward, and backward from the gradients of its results.

torch's engine takes functions in the reverse order of their making, and adds their results to a value's gradient in
that order. So it goes through a document's nodes from the last to the first, and a node's backward can be done alone:
it adds to the gradient that later nodes have given each argument so far, function by function, as the engine does over
the whole graph. Each argument gets an alias, whose gradient the engine gets as a root beside those of the results.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphdoc.document.interpret import STEP_ERRORS, explain_error
from graphdoc.document.plans import call_operator
from graphdoc.errors import DocumentRefused
from graphdoc.tracing.unrolled import UnrolledCall
from graphdoc.tracing.values import Traced, Value


@dataclass(frozen=True, slots=True)
class Ran:
    """A call that ran forward: its arguments' aliases, None where no gradient is required, and its results as made."""

    aliases: tuple[Tensor | None, ...]
    results: tuple[Any, ...]


def run_forward(call: UnrolledCall, arguments: Sequence[Traced], seed: bytes, device: str) -> tuple[Ran, list[Value]]:
    """Returns the values that backward needs, and the results. Raises DocumentRefused, OutOfMemory."""
    values = call.nodes.values.copy()
    values[call.nodes.seed], values[call.nodes.device] = seed, torch.device(device)
    aliases: list[Tensor | None] = []
    for place, argument in zip(call.places, arguments, strict=True):
        data = argument.data if isinstance(argument.data, int) else argument.tensor(device)
        alias = data.detach().requires_grad_() if argument.grad and isinstance(data, Tensor) else None
        values[place] = data if alias is None else alias
        aliases.append(alias)
    try:
        if call.step.condition is not None:
            call.step.condition(call.step.arguments(values))
        result = call_operator(call.step, values)
    except STEP_ERRORS as error:
        raise explain_error(call.name, error) from None
    results = (result,) if call.step.single else tuple(result)
    if len(results) != call.step.count:
        raise DocumentRefused(f"{call.name}: it gives {len(results)} values")
    held: list[Value] = [
        Traced(each.detach(), each.requires_grad) if isinstance(each, Tensor) else Traced(int(each)) for each in results
    ]
    return Ran(tuple(aliases), results), held


def run_backward(ran: Ran, given: Sequence[Value], so_far: Sequence[Value]) -> list[Value]:
    """Returns the gradient of each argument: the gradient `so_far` plus the node's part.

    `given` are the gradients of the results. Raises DocumentRefused, OutOfMemory.
    """
    aliases = {place: alias for place, alias in enumerate(ran.aliases) if alias is not None}
    roots: list[Tensor] = []
    gradients: list[Tensor] = []
    for result, value in zip(ran.results, given, strict=True):
        if value is not None and isinstance(result, Tensor) and result.requires_grad:
            roots.append(result)
            gradients.append(value.data)
    if not roots or not aliases:
        return list(so_far)
    before = {place: value.data for place, value in enumerate(so_far) if value is not None and place in aliases}
    roots = [*(aliases[place] for place in before), *roots]
    gradients = [*before.values(), *gradients]
    try:
        found = torch.autograd.grad(roots, list(aliases.values()), gradients, allow_unused=True)
    except STEP_ERRORS as error:
        raise explain_error("backward", error) from None
    after = list(so_far)
    for place, gradient in zip(aliases, found, strict=True):
        # the gradient, written out where it is torch's zero tensor, which has no memory
        after[place] = None if gradient is None else Traced(gradient.clone() if gradient._is_zerotensor() else gradient)
    return after
