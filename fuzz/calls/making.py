"""One call made: on shapes alone, and on tensors in two differently poisoned memories, forward and backward."""

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from fuzz.calls.arrays import POISONS, Arrays, poisoned
from gradmarket.market.errors import DocumentRefused
from graphdoc.conditions.recurrent import SEQUENCES, compute_recurrent_shapes
from graphdoc.document.calls import OPERATORS, TORCH_MEMORY_FORMATS, TORCH_TYPES, OperatorCall
from graphdoc.document.interpret import STEP_ERRORS
from graphdoc.document.meter import BACKWARD
from graphdoc.document.plans import Form, read_result_form

BYTES: Final = 2**22
"""The most bytes of a call's results, and the most operations of a call, that are made here."""
OPERATIONS: Final = 2 * 10**7
SLOWEST: Final = (1.0, 50e-9)
"""Seconds of processor time for a call, and for each operation of its cost, above which the cost bounds nothing."""
SEED: Final = bytes(range(32))
META: Final = torch.device("meta")
CPU: Final = torch.device("cpu")
REFUSED: Final = ""
"""The answer of a call that is refused when it runs."""


class Finding(Exception):
    """A fault of an operator or of its bound."""


Other = Callable[[str, list[Any]], Callable[[], str]]
"""Begins a call in another memory; the returned function waits for the answer. Raises Finding."""


def in_this_process(key: str, written: list[Any]) -> Callable[[], str]:
    """The second memory is this process's own, filled anew."""
    return lambda: answer(key, written, POISONS[1])


def made(key: str, written: list[Any], back: bool = True, other: Other = in_this_process) -> None:
    """Raises DocumentRefused where the call is refused, and Finding where its results break a rule.

    `back`: also the backward pass of shapes alone, which is most of the time of a small call.
    """
    operator = OPERATORS[key]
    given = given_of(operator, written)
    forms, operations = _alone(operator, given, back)
    wait = other(key, written)
    before = time.process_time()
    try:
        one = answer(key, written, POISONS[0], forms)
        seconds = time.process_time() - before
    finally:
        two = wait()
    _must((one == REFUSED) == (two == REFUSED), "it is refused in one memory and not in the other")
    if one == REFUSED:
        raise DocumentRefused("refused when it ran")
    _must(one == two, "its bits depend on what was in memory")
    most = SLOWEST[0] + operations * SLOWEST[1]
    _must(seconds < most, f"it took {seconds:.2f} s for {operations} operations")


def answer(key: str, written: list[Any], poison: int, forms: Sequence[Form] | None = None) -> str:
    """The digest of the bits of every result and gradient; REFUSED where it is refused. Raises Finding."""
    poisoned(poison)
    operator, arrays = OPERATORS[key], Arrays(poison)
    arguments = arrays.made(given_of(operator, written))
    try:
        results = called(operator, arguments, CPU)
        found = [read_result_form(result) for result in results]
        _must(forms is None or found == forms, f"it gives {found}, its shapes alone {forms}")
        bits = [_bits(result) for result in (*results, *gradients(results, arguments))]
    except (DocumentRefused, *STEP_ERRORS):
        return REFUSED
    finally:
        _must(not arrays.touched(), "it wrote beyond a tensor")
    return hashlib.sha256(repr(bits).encode()).hexdigest()


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Finding(otherwise)


def given_of(operator: OperatorCall, written: list[Any]) -> list[Any]:
    """The call's arguments as torch takes them, but for its tensors."""
    return [_given(kind, value) for kind, value in zip(operator.entry.arguments, written, strict=True)]


def _given(kind: str, value: Any) -> Any:
    if value is not None and kind.startswith("dtype"):
        return TORCH_TYPES[value]
    return TORCH_MEMORY_FORMATS[value] if value is not None and kind.startswith("memory") else value


def _alone(operator: OperatorCall, given: Sequence[Any], back: bool) -> tuple[list[Form], int]:
    """Returns the forms of its results and the bound of its operations, from shapes."""
    arguments = without_elements(Arrays(0).made(list(given)))
    try:
        results = called(operator, arguments, META)
        forms = [read_result_form(result) for result in results]
        size = sum(result.numel() * result.element_size() for result in results if isinstance(result, Tensor))
        operations = (1 + BACKWARD) * operator.entry.cost(arguments, results)
        if size > BYTES or operations > OPERATIONS:
            raise DocumentRefused("too large to be made here")
        if back:
            gradients(results, arguments)
    except STEP_ERRORS as error:
        raise DocumentRefused(str(error)[:200]) from None
    return forms, operations


def called(operator: OperatorCall, arguments: Sequence[Any], device: torch.device) -> list[Any]:
    if operator.condition is not None:
        operator.condition(arguments)
    if device is META and operator.key in SEQUENCES:
        return [arguments[0].new_empty(shape) for shape in compute_recurrent_shapes(arguments)]
    by_name = {name: arguments[place] for place, name in operator.keywords.items()}
    by_place = [argument for place, argument in enumerate(arguments) if place not in operator.keywords]
    extra = {"seed": [SEED], "device": [device], None: []}[operator.entry.extra]
    results = operator.call(*by_place, *extra, **by_name)
    return list(results) if isinstance(results, list | tuple) else [results]


def without_elements(value: Any) -> Any:
    if isinstance(value, list):
        return [without_elements(part) for part in value]
    if not isinstance(value, Tensor):
        return value
    return torch.empty_like(value, device=META).requires_grad_(value.requires_grad)


def tensors_of(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [one for part in value for one in tensors_of(part)] if isinstance(value, list | tuple) else []


def gradients(results: Sequence[Any], arguments: Sequence[Any]) -> list[Tensor]:
    """Of the sum of every float result."""
    ends = [result for result in results if isinstance(result, Tensor) and result.requires_grad]
    leaves = [leaf for leaf in tensors_of(list(arguments)) if leaf.requires_grad]
    if not ends or not leaves:
        return []
    found = torch.autograd.grad(ends, leaves, [torch.ones_like(end) for end in ends], allow_unused=True)
    return [gradient for gradient in found if gradient is not None]


def _bits(result: Any) -> Any:
    if not isinstance(result, Tensor):
        return result
    flat = torch.empty(result.numel(), dtype=result.dtype).copy_(result.detach().reshape(-1))
    return flat.view(torch.uint8).numpy().tobytes()
