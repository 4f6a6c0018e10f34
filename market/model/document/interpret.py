"""Runs a checked document on tensors: every node once, in order, each value freed after its last reader."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from gradmarket.market.errors import DocumentRefused, MarketError, OutOfMemory
from gradmarket.market.model.document.arguments import INTEGER_LIMIT, Reference
from gradmarket.market.model.document.operators import OPERATORS, SEEDED, Operator
from gradmarket.market.model.document.schema import Document, Node

TORCH_TYPES: Final = {
    "float32": torch.float32,
    "int64": torch.int64,
    "int32": torch.int32,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
TORCH_MEMORY_FORMATS: Final = {
    "contiguous_format": torch.contiguous_format,
    "preserve_format": torch.preserve_format,
}
_STEP_ERRORS: Final = (RuntimeError, TypeError, ValueError, LookupError, ArithmeticError, MemoryError)
_OUT_OF_MEMORY: Final = ("allocate memory", "out of memory", "bad_alloc", "Cannot allocate")


class Watcher(Protocol):
    """Sees every node that ran: its operator, what went in and what came out."""

    def __call__(self, operator: Operator, arguments: Sequence[Any], results: Sequence[Any]) -> None: ...


@dataclass(frozen=True)
class Results:
    """`loss` is a scalar float32; metrics are scalars; updates are the float buffers' new values."""

    loss: Tensor
    metrics: dict[str, Tensor]
    updates: dict[str, Tensor]


@dataclass(frozen=True)
class _Step:
    name: str
    operator: Operator
    arguments: tuple[Any, ...]
    results: tuple[int, ...]
    seeded: bool
    dead_after: tuple[int, ...]


class Program:
    """A document made ready to run, any number of times. Its methods raise DocumentRefused and OutOfMemory."""

    def __init__(self, document: Document) -> None:
        self.document = document
        dying = _last_readers(document)
        self._steps = [_prepared(node, dying.get(number, ())) for number, node in enumerate(document.nodes)]

    def run(
        self, state: Mapping[str, Tensor], data: Mapping[str, Tensor], seed: bytes, watcher: Watcher | None = None
    ) -> Results:
        """Every output from `state` and `data`, both by input name; `seed` is for dropout."""
        values: dict[int, Any] = {}
        for number, entry in enumerate(self.document.inputs):
            values[number] = (data if entry.kind == "data" else state)[entry.name]
        for number, step in enumerate(self._steps):
            try:
                _apply(step, values, seed, watcher)
            except MarketError:
                raise
            except _STEP_ERRORS as error:
                raise _explained(f"node {number} ({step.name})", error) from None
        return self._results(values)

    def _results(self, values: Mapping[int, Any]) -> Results:
        document = self.document
        loss = values[document.loss]
        if loss.dim() != 0 or loss.dtype != torch.float32:
            raise DocumentRefused("the loss is not one float32")
        metrics = {name: values[number] for name, number in document.metrics.items()}
        if any(metric.dim() != 0 for metric in metrics.values()):
            raise DocumentRefused("a metric is not one number")
        updates = {name: values[number] for name, number in document.updates.items()}
        self._check_updates(updates)
        return Results(loss, metrics, updates)

    def _check_updates(self, updates: Mapping[str, Tensor]) -> None:
        for name, update in updates.items():
            if tuple(update.shape) != self.document.state[name][0] or update.dtype != torch.float32:
                raise DocumentRefused(f"the update of {name} has another shape or type")


def gradients(loss: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of each parameter, zeros where the loss does not depend on it.

    Raises DocumentRefused, OutOfMemory.
    """
    if not loss.requires_grad:
        raise DocumentRefused("the loss depends on no parameter")
    try:
        found = torch.autograd.grad(loss, list(parameters), allow_unused=True)
    except _STEP_ERRORS as error:
        raise _explained("backward", error) from None
    pairs = zip(found, parameters, strict=True)
    return [torch.zeros_like(parameter) if gradient is None else gradient for gradient, parameter in pairs]


def _explained(where: str, error: Exception) -> MarketError:
    text = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(word in str(error) for word in _OUT_OF_MEMORY):
        return OutOfMemory(f"{where}: {text[0][:200]}")
    return DocumentRefused(f"{where}: {text[0][:200]}")


def _last_readers(document: Document) -> dict[int, tuple[int, ...]]:
    """Node -> the values that no later node and no output reads; inputs stay."""
    last: dict[int, int] = {}
    for number, node in enumerate(document.nodes):
        last.update(dict.fromkeys(node.results, number))
        last.update(dict.fromkeys(_references(node.arguments), number))
    kept = {document.loss, *document.metrics.values(), *document.updates.values(), *range(len(document.inputs))}
    dying: dict[int, list[int]] = {}
    for value, number in last.items():
        if value not in kept:
            dying.setdefault(number, []).append(value)
    return {number: tuple(values) for number, values in dying.items()}


def _references(arguments: Sequence[Any]) -> list[int]:
    found = []
    for argument in arguments:
        if isinstance(argument, Reference):
            found.append(argument.value)
        elif isinstance(argument, tuple):
            found += _references(argument)
    return found


def _prepared(node: Node, dead_after: tuple[int, ...]) -> _Step:
    operator = OPERATORS[node.op]
    pairs = zip(operator.signature.arguments, node.arguments, strict=True)
    arguments = tuple(_torch_argument(kind, argument) for kind, argument in pairs)
    return _Step(node.op, operator, arguments, node.results, node.op in SEEDED, dead_after)


def _torch_argument(kind: str, argument: Any) -> Any:
    if argument is None:
        return None
    if kind.startswith("dtype"):
        return TORCH_TYPES[argument]
    if kind.startswith("memory"):
        return TORCH_MEMORY_FORMATS[argument]
    return argument


def _apply(step: _Step, values: dict[int, Any], seed: bytes, watcher: Watcher | None) -> None:
    arguments = [_resolved(argument, values) for argument in step.arguments]
    results = _call(step, arguments, seed)
    if len(results) != len(step.results):
        raise DocumentRefused(f"{step.name} gives {len(results)} values")
    if watcher is not None:
        watcher(step.operator, arguments, results)
    values.update(zip(step.results, results, strict=True))
    for value in step.dead_after:
        del values[value]


def _call(step: _Step, arguments: list[Any], seed: bytes) -> Sequence[Any]:
    named = {name: arguments[place] for place, name in step.operator.keywords.items()}
    positional = [argument for place, argument in enumerate(arguments) if place not in step.operator.keywords]
    result = step.operator.call(*positional, *([seed] if step.seeded else []), **named)
    if isinstance(result, int) and abs(result) > INTEGER_LIMIT:
        raise DocumentRefused(f"{step.name} gives an integer beyond {INTEGER_LIMIT}")
    return result if isinstance(result, list | tuple) else (result,)


def _resolved(argument: Any, values: Mapping[int, Any]) -> Any:
    if isinstance(argument, Reference):
        return values[argument.value]
    if isinstance(argument, tuple):
        return [_resolved(element, values) for element in argument]
    return argument
