"""From `torch.export` to a graph document, on the machine of the model's owner.

The dialect is functional and has no modes: regions.py writes out the effects of `no_grad` and `autocast`, functional.py
turns every write in place into a new value and the updates of buffers into outputs. So an in-place model is right or
refused, never silently wrong.
"""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec

from graphdoc.document.arguments import INPUT_DTYPES
from graphdoc.document.encode import DTYPE_NAMES, Same, encode_argument
from graphdoc.document.exported import (
    content_name,
    is_empty,
    leave_out_empty,
    list_ancestors,
    order_in_memory,
    tensor_of,
)
from graphdoc.document.functional import Trace, build_functional_trace
from graphdoc.document.refusals import build_document_refusal, operator_name
from graphdoc.document.rephrase import build_operation
from graphdoc.document.rephrased_draws import is_drawing
from graphdoc.document.rolling import roll_loops
from graphdoc.document.schema import FORMAT, ROWS, WEIGHED, parse_document
from graphdoc.document.unfit import refuse_overlaps
from graphdoc.document.weights import add_loss_weight
from graphdoc.encoding import canonical
from graphdoc.errors import DocumentRefused
from graphdoc.operators import ALLOWED

Encoded = dict[str, Any]
Names = Mapping[str, Mapping[int, str]]
"""Each data input in order -> dimension -> the size that it is named after."""


def emit_document(
    exported: ExportedProgram,
    data: Names,
    metrics: Sequence[str],
    prefix: str = "",
    sizes: Mapping[str, int] | None = None,
    example: Mapping[str, Tensor] | None = None,
) -> tuple[bytes, dict[str, Tensor]]:
    """Returns the document of a program that gives (loss, *metrics), and its state: parameters, buffers, constants.

    `data` has the names of its inputs, `sizes` the maximum of each of their named dimensions, `example` rows of each:
    where they weigh unequally in the loss, the document has its weight (weights.py). Tensors that are one and the same
    in the module (tied weights) go in once, under the first of their names, without `prefix`. Raises DocumentRefused,
    naming the operation that the language lacks, its place in the module, and a replacement.
    """
    trace = build_functional_trace(exported)
    weight = None if example is None else add_loss_weight(trace, exported, list(data), example)
    emission = _Emission(exported, trace, data, metrics, prefix, weight)
    document = canonical(roll_loops(emission.document(sizes or {}), emission.form))
    parse_document(document)
    return document, emission.state


class _Emission:
    """One pass over one functional graph."""

    def __init__(
        self,
        program: ExportedProgram,
        trace: Trace,
        data: Names,
        metrics: Sequence[str],
        prefix: str,
        weight: fx.Node | None,
    ) -> None:
        self.state: dict[str, Tensor] = {}
        self._program = program
        self._trace = trace
        self._prefix = prefix
        self._data = iter(data.items())
        self._inputs: list[Encoded] = []
        self._nodes: list[Encoded] = []
        self._values: dict[fx.Node, dict[int, int]] = {}
        self._next_value = 0
        self._forms: dict[int, Any] = {}
        self._laid_out: dict[int, int] = {}
        self._tied: dict[tuple[Any, ...], int] = {}
        for node in trace.results:
            if not isinstance(node, fx.Node):
                raise DocumentRefused(f"the model returns {node!r}, which is not a tensor")
        self._loss, self._weight = trace.results[0], weight
        self._metrics = dict(zip(metrics, trace.results[1:], strict=True))

    def document(self, sizes: Mapping[str, int]) -> Encoded:
        for node, specification in self._trace.inputs:
            self._emit_placeholder(node, specification)
        changing = [entry["name"] for entry in self._inputs if entry["grad"] or entry["kind"] == "buffer"]
        refuse_overlaps(self.state, changing)
        self._next_value = len(self._inputs)
        for value, name in enumerate(entry["name"] for entry in self._inputs):
            if name in self.state:
                self._lay_out(value, self.state[name])
        outputs = [self._loss, *self._metrics.values(), *self._trace.updates.values()]
        self._emit_calls(list_ancestors(outputs if self._weight is None else [*outputs, self._weight]))
        weight = {} if self._weight is None else {"weight": self._resolve_value(self._weight)}
        return {
            "format": WEIGHED if weight else FORMAT,
            "sizes": dict(sizes),
            "inputs": self._inputs,
            "nodes": self._nodes,
            "loss": self._resolve_value(self._loss),
            "metrics": {name: self._resolve_value(node) for name, node in self._metrics.items()},
            "updates": {
                self._strip_prefix(target): self._resolve_value(node) for target, node in self._trace.updates.items()
            },
            **weight,
        }

    def form(self, value: int) -> Any:
        """Returns the shape and element type of a value; None where they are not known."""
        return self._forms.get(value)

    def _emit_calls(self, needed: set[fx.Node]) -> None:
        """Emits the calls. Draws are numbered as the module draws, also those that nobody reads."""
        site = 0
        for node in self._trace.nodes:
            if node.op == "call_function":
                if node in needed:
                    self._emit_call(node, site)
                site += is_drawing(node)

    def _emit_placeholder(self, node: fx.Node, specification: InputSpec) -> None:
        if specification.kind == InputKind.USER_INPUT:
            name, named = next(self._data)
            self._values[node] = {0: self._add_input("data", name, node.meta["val"], False, {0: ROWS, **named})}
            return
        tensor = tensor_of(self._program, specification)
        if tensor.numel() == 0:
            return
        identity = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        if identity not in self._tied:
            self._tied[identity] = self._state_input(specification, tensor)
        self._values[node] = {0: self._tied[identity]}

    def _state_input(self, specification: InputSpec, tensor: Tensor) -> int:
        target, kind = str(specification.target), "const"
        name = self._strip_prefix(target)
        if specification.kind == InputKind.PARAMETER:
            kind = "param"
        elif target in self._trace.updates or target in self._trace.counters:
            if specification.kind != InputKind.BUFFER:
                raise DocumentRefused("the loss writes to a tensor that is no buffer of the module: register it there")
            kind = "buffer"
        elif specification.kind == InputKind.CONSTANT_TENSOR:
            name = content_name(tensor)
        if name in self.state:
            return next(number for number, entry in enumerate(self._inputs) if entry["name"] == name)
        self.state[name] = tensor.detach()
        return self._add_input(kind, name, tensor, kind == "param" and tensor.requires_grad)

    def _lay_out(self, value: int, tensor: Tensor) -> None:
        """Gives a tensor that travels in plain order its own order in memory again: kernels depend on it."""
        order = order_in_memory(tensor)
        if order is None:
            return
        back = sorted(range(len(order)), key=order.__getitem__)
        self._laid_out[value] = self._next_value + 2
        for op, further in (
            ("permute.default", order),
            ("clone.default", "contiguous_format"),
            ("permute.default", back),
        ):
            self._nodes.append({"op": op, "args": [{"v": value}, further], "out": [self._next_value]})
            value = self._next_value
            self._next_value += 1

    def _strip_prefix(self, target: str) -> str:
        return target.removeprefix(self._prefix)

    def _add_input(
        self, kind: str, name: str, tensor: Tensor, grad: bool, named: Mapping[int, str] | None = None
    ) -> int:
        dtype = DTYPE_NAMES.get(tensor.dtype, "")
        if dtype not in INPUT_DTYPES:
            raise DocumentRefused(
                f"{name} is of {tensor.dtype}; keep parameters and data in float32 and compute in torch.autocast"
            )
        shape = [(named or {}).get(place, dimension) for place, dimension in enumerate(tensor.shape)]
        self._forms[len(self._inputs)] = _describe_form(tensor)
        self._inputs.append({"kind": kind, "name": name, "shape": shape, "dtype": dtype, "grad": grad})
        return len(self._inputs) - 1

    def _emit_call(self, node: fx.Node, site: int) -> None:
        if any(map(is_empty, node.all_input_nodes)):
            leave_out_empty(node)
        if node.target is operator.getitem:
            source, index = node.args
            self._values[node] = {0: self._resolve_value(source, index)}
            return
        if is_empty(node):
            return
        built = build_operation(node, site)
        if isinstance(built, Same):
            self._values[node] = self._values[built.node]
            return
        kinds = ALLOWED[built.op].arguments
        try:
            arguments = [
                encode_argument(*pair, self._resolve_value) for pair in zip(kinds, built.arguments, strict=True)
            ]
        except DocumentRefused as error:
            raise build_document_refusal(node, f"has {error.detail}") from None
        results = [self._next_value + place for place in range(len(built.results))]
        self._nodes.append({"op": built.op, "args": arguments, "out": results})
        self._values[node] = dict(zip(built.results, results, strict=True))
        given = node.meta["val"]
        parts = given if isinstance(given, list | tuple) else [given]
        self._forms.update({value: _describe_form(part) for value, part in zip(results, parts, strict=False)})
        self._next_value += len(results)

    def _resolve_value(self, node: Any, index: Any = 0) -> int:
        if index not in self._values[node]:
            raise build_document_refusal(node, f"has a result {index}, which is not given here", operator_name(node))
        value = self._values[node][index]
        return self._laid_out.get(value, value)


def _describe_form(value: Any) -> Any:
    """Returns the shape and element type of a tensor, with symbols for unknown sizes; the type of anything else."""
    return (tuple(map(str, value.shape)), value.dtype) if isinstance(value, Tensor) else type(value)
