"""Runs a checked document on tensors: each node in order; each value is freed after its last reader.

Every node runs once, those of a scan's body once for each step.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from graphdoc.document.calls import OperatorCall
from graphdoc.document.captured import CapturedPasses
from graphdoc.document.graph import Document
from graphdoc.document.plans import (
    KEPT,
    Call,
    Hold,
    Plan,
    call_operator,
    check_forms,
    hold_to,
    key_of,
    record_forms,
    shaped_alone,
    without_elements,
)
from graphdoc.document.prepare import PreparedCall, PreparedNodes, PreparedScan, prepare_document
from graphdoc.document.product_precisions import compute_in_tf32
from graphdoc.document.randomness import Seed
from graphdoc.document.scans import Scanned, ScanRun, every_step, run_scan_ends
from graphdoc.errors import DocumentRefused, GraphdocError, OutOfMemory, describe_exhaustion, is_out_of_memory
from graphdoc.reproducible.mode import compute_reproducibly

STEP_ERRORS: Final = (
    RuntimeError, TypeError, ValueError, LookupError, ArithmeticError, MemoryError, AttributeError, AssertionError,
)  # fmt: skip
"""The errors that operators raise for invalid arguments; those written in Python use assert."""


class Watcher(Protocol):
    """Receives every node that ran: its operator, arguments and results, and the number of such nodes it represents."""

    def __call__(
        self, operator: OperatorCall, arguments: Sequence[Any], results: Sequence[Any], times: int
    ) -> None: ...


@dataclass(frozen=True)
class Way:
    """The functions that give nodes their results: those of operators, and those of scans."""

    call: Call
    scan: Scanned


COMPUTED: Final = Way(call_operator, every_step)
SHAPED: Final = Way(shaped_alone, run_scan_ends)
"""For tensors that have shapes and no elements."""


@dataclass(frozen=True)
class Results:
    """A run's outputs. `loss` is a scalar float32; metrics are scalars; updates are new values of float buffers.

    `weight` is a scalar, the sum of the rows' weights; None where every row weighs 1.
    """

    loss: Tensor
    metrics: dict[str, Tensor]
    updates: dict[str, Tensor]
    weight: Tensor | None = None


class Program:
    """A document that is ready to run any number of times. Its methods raise DocumentRefused and OutOfMemory."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.prepared = prepare_document(document)
        self.captured: CapturedPasses | None = None
        """Recordings of its passes with gradients; None where every pass is computed node by node."""
        self.held: tuple[str, dict[str, Tensor]] = "", {}
        """The state that stays on the card from task to task, by its name."""
        self._plans: dict[tuple[torch.Size, ...], Plan] = {}

    def run(
        self,
        state: Mapping[str, Tensor],
        data: Mapping[str, Tensor],
        seed: Seed,
        watcher: Watcher | None = None,
        way: Way = COMPUTED,
    ) -> Results:
        """Returns every output for `state` and `data`, both by input name.

        `seed` is the seed of random draws. All tensors are on the device of the data.
        """
        values = self._build_start_values(state, data, seed)
        device = values[self.prepared.device].type
        alone = device == "meta"
        hold = check_forms if alone else partial(hold_to, self._compute_plan(state, data))
        with self.computing(device):
            _Run(way, hold, watcher).perform_nodes(self.prepared, values)
        return self._build_results(values)

    def computing(self, device: str) -> AbstractContextManager[None]:
        """Returns a context in which torch computes in the document's arithmetic, gradients too; it may be entered
        twice.

        `device` is the type of the tensors' device.
        """
        if self.document.arithmetic == "native":
            return nullcontext()
        return compute_in_tf32(device) if self.document.arithmetic == "tf32" else compute_reproducibly()

    def _build_start_values(self, state: Mapping[str, Tensor], data: Mapping[str, Tensor], seed: Seed) -> list[Any]:
        """Returns the values before the first node runs."""
        values = self.prepared.values.copy()
        for number, entry in enumerate(self.document.inputs):
            values[number] = (data if entry.kind == "data" else state)[entry.name]
        values[self.prepared.seed] = seed
        values[self.prepared.device] = next(iter(data.values())).device
        return values

    def _compute_plan(self, state: Mapping[str, Tensor], data: Mapping[str, Tensor]) -> Plan:
        """Returns the plan, computed once for each shape of the inputs."""
        key = key_of(data)
        if key not in self._plans:
            values = self._build_start_values(without_elements(state), without_elements(data), bytes(32))
            plan: Plan = {}
            with torch.no_grad():
                _Run(SHAPED, partial(record_forms, plan), None).perform_nodes(self.prepared, values)
            self._plans[key] = plan
            for old in list(self._plans)[:-KEPT]:
                del self._plans[old]
        return self._plans[key]

    def _build_results(self, values: Sequence[Any]) -> Results:
        document = self.document
        loss = values[document.loss]
        if loss.dim() != 0 or loss.dtype != torch.float32:
            raise DocumentRefused("the loss is not one float32")
        metrics = {name: values[number] for name, number in document.metrics.items()}
        if any(metric.dim() != 0 for metric in metrics.values()):
            raise DocumentRefused("a metric is not one number")
        updates = {name: values[number] for name, number in document.updates.items()}
        self._check_updates(updates)
        weight = None if document.weight is None else values[document.weight]
        if weight is not None and weight.dim() != 0:
            raise DocumentRefused("the weight is not one number")
        return Results(loss, metrics, updates, weight)

    def _check_updates(self, updates: Mapping[str, Tensor]) -> None:
        for name, update in updates.items():
            if tuple(update.shape) != self.document.state[name][0] or update.dtype != torch.float32:
                raise DocumentRefused(f"the update of {name} has another shape or type")


def compute_gradients(loss: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Returns the gradient of each parameter, zeros where the loss does not depend on it.

    Raises DocumentRefused, OutOfMemory.
    """
    if not loss.requires_grad:
        raise DocumentRefused("the loss depends on no parameter")
    try:
        computed = torch.autograd.grad(loss, list(parameters), allow_unused=True)
    except STEP_ERRORS as error:
        raise explain_error("backward", error) from None
    pairs = zip(computed, parameters, strict=True)
    # a gradient is missing, or is torch's zero tensor without memory, which numpy cannot read
    return [
        torch.zeros_like(parameter) if gradient is None or gradient._is_zerotensor() else gradient
        for gradient, parameter in pairs
    ]


def explain_error(where: str, error: Exception) -> GraphdocError:
    """Returns the error to raise for an operator's error."""
    text = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, torch.OutOfMemoryError) or is_out_of_memory(error):
        return OutOfMemory(f"{where}: {describe_exhaustion(error)}")
    return DocumentRefused(f"{where}: {text[0][:200]}")


@dataclass(frozen=True)
class _Run:
    way: Way
    hold: Hold
    watcher: Watcher | None

    def perform_nodes(self, nodes: PreparedNodes, values: list[Any], times: int = 1) -> None:
        """Runs every node once: checks its condition before the call, and its results against the plan after it.

        This loop is the fixed cost of a node, so it looks nothing up by name.
        """
        call, hold, watcher = self.way.call, self.hold, self.watcher
        step: PreparedCall | PreparedScan | None = None
        try:
            for step in nodes.steps:
                if isinstance(step, PreparedScan):
                    results = self.way.scan(ScanRun(step, values, nodes, self.perform_nodes))
                    hold(step.number, results)
                else:
                    if step.condition is not None:
                        step.condition(step.arguments(values))
                    results = call(step, values)
                    results = (results,) if step.single else tuple(results)
                    if len(results) != step.count:
                        raise DocumentRefused(f"it gives {len(results)} values")
                    hold(step.number, results)
                    if watcher is not None:
                        watcher(step.operator, step.arguments(values), results, times)
                values[step.first : step.first + step.count] = results
                del results
                for dead in step.dead_after:
                    values[dead] = None
        except GraphdocError as error:
            raise type(error)(f"{_describe_node(step, nodes)}: {error.detail}") from None
        except STEP_ERRORS as error:
            raise explain_error(_describe_node(step, nodes), error) from None


def _describe_node(step: PreparedCall | PreparedScan | None, nodes: PreparedNodes) -> str:
    return f"node {nodes.steps.index(step)} ({step.name})" if step is not None else "the first node"
