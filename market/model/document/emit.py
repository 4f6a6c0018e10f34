"""From `torch.export` to a graph document, on the machine of the model's owner.

The dialect is functional: the exported program is decomposed with an empty table, which turns every write in place,
through views too, into new values, and the updates of buffers into outputs. So an in-place model is right or refused,
never silently wrong. What that would lose is refused before: regions (no_grad, autocast), writes to parameters or
inputs, and operators outside the allow-list, among them those that hide a write (instance_norm) or a draw (bernoulli).
"""

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from blake3 import blake3
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec

from gradmarket.market.errors import DocumentRefused
from gradmarket.market.job import canonical
from gradmarket.market.model.document.encode import DTYPE_NAMES, aten_name, encoded, operation
from gradmarket.market.model.document.schema import FORMAT, ROWS, load
from gradmarket.market.model.document.signatures import SIGNATURES

Encoded = dict[str, Any]


def emit(exported: ExportedProgram, metrics: Sequence[str], prefix: str = "") -> tuple[bytes, dict[str, Tensor]]:
    """The document of a program that returns (loss, *metrics), and the state it reads: parameters, buffers, constants.

    Tensors that are one and the same in the module (tied weights) go in once, under the first of their names, without
    `prefix`. Raises DocumentRefused, naming what the language does not have.
    """
    _refuse_regions(exported)
    emission = _Emission(exported.run_decompositions({}), metrics, prefix)
    document = canonical(emission.document())
    load(document)
    return document, emission.state


def _refuse_regions(exported: ExportedProgram) -> None:
    """Decomposition drops a no_grad region without a word, and its gradient would be another."""
    for node in exported.graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise DocumentRefused(f"the model has a region that the language does not have: {node.target}")


class _Emission:
    """One pass over one decomposed program."""

    def __init__(self, program: ExportedProgram, metrics: Sequence[str], prefix: str) -> None:
        self.state: dict[str, Tensor] = {}
        self._program = program
        self._prefix = prefix
        self._inputs: list[Encoded] = []
        self._nodes: list[Encoded] = []
        self._values: dict[fx.Node, dict[int, int]] = {}
        self._next_value = 0
        self._dropouts = 0
        self._tied: dict[tuple[Any, ...], int] = {}
        self._loss, self._metrics, self._updates, self._counters = _outputs(program, metrics)

    def document(self) -> Encoded:
        graph = self._program.graph
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        for node, specification in zip(placeholders, self._program.graph_signature.input_specs, strict=True):
            self._place(node, specification)
        needed = _ancestors([self._loss, *self._metrics.values(), *self._updates.values()])
        for node in graph.nodes:
            if node.op == "call_function" and node in needed:
                self._call(node)
        return {
            "format": FORMAT,
            "inputs": self._inputs,
            "nodes": self._nodes,
            "loss": self._value(self._loss),
            "metrics": {name: self._value(node) for name, node in self._metrics.items()},
            "updates": {self._plain(target): self._value(node) for target, node in self._updates.items()},
        }

    def _place(self, node: fx.Node, specification: InputSpec) -> None:
        if specification.kind == InputKind.USER_INPUT:
            self._values[node] = {0: self._input("data", str(specification.arg.name), node.meta["val"], False)}
            return
        tensor = _tensor(self._program, specification)
        identity = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        if identity not in self._tied:
            self._tied[identity] = self._state_input(specification, tensor)
        self._values[node] = {0: self._tied[identity]}

    def _state_input(self, specification: InputSpec, tensor: Tensor) -> int:
        target, kind = str(specification.target), "const"
        name = self._plain(target)
        if specification.kind == InputKind.PARAMETER:
            kind = "param"
        elif target in self._updates or target in self._counters:
            kind = "buffer"
        elif specification.kind == InputKind.CONSTANT_TENSOR:
            name = _content_name(tensor)
        if name in self.state:
            return next(number for number, entry in enumerate(self._inputs) if entry["name"] == name)
        self.state[name] = tensor.detach()
        return self._input(kind, name, tensor, kind == "param" and tensor.requires_grad)

    def _plain(self, target: str) -> str:
        return target.removeprefix(self._prefix)

    def _input(self, kind: str, name: str, tensor: Tensor, grad: bool) -> int:
        if tensor.dtype not in DTYPE_NAMES:
            raise DocumentRefused(f"{name} is of {tensor.dtype}, which the language does not have")
        shape = [dimension if isinstance(dimension, int) else ROWS for dimension in tensor.shape]
        dtype = DTYPE_NAMES[tensor.dtype]
        self._inputs.append({"kind": kind, "name": name, "shape": shape, "dtype": dtype, "grad": grad})
        self._next_value = len(self._inputs)
        return len(self._inputs) - 1

    def _call(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            source, index = node.args
            self._values[node] = {0: self._value(source, index)}
            return
        found = operation(node, self._dropouts)
        self._dropouts += found.op == "dropout.hash"
        kinds = SIGNATURES[found.op].arguments
        arguments = [encoded(*pair, self._value) for pair in zip(kinds, found.arguments, strict=True)]
        results = [self._next_value + place for place in range(len(found.results))]
        self._nodes.append({"op": found.op, "args": arguments, "out": results})
        self._values[node] = dict(zip(found.results, results, strict=True))
        self._next_value += len(results)

    def _value(self, node: Any, index: Any = 0) -> int:
        if index not in self._values[node]:
            raise DocumentRefused(f"the model reads result {index} of {aten_name(node)}, which is not given here")
        return self._values[node][index]


def _outputs(
    program: ExportedProgram, metrics: Sequence[str]
) -> tuple[fx.Node, dict[str, fx.Node], dict[str, fx.Node], set[str]]:
    """(the loss, the metrics by name, the updates of float buffers by name, the names of the counters)."""
    results = next(node for node in program.graph.nodes if node.op == "output").args[0]
    answers: list[fx.Node] = []
    updates: dict[str, fx.Node] = {}
    counters: set[str] = set()
    for node, specification in zip(results, program.graph_signature.output_specs, strict=True):
        if not isinstance(node, fx.Node):
            raise DocumentRefused(f"the model returns {node!r}, which is not a tensor")
        if specification.kind == OutputKind.USER_OUTPUT:
            answers.append(node)
        elif _counts(node, specification):
            counters.add(str(specification.target))
        else:
            updates[str(specification.target)] = node
    return answers[0], dict(zip(metrics, answers[1:], strict=True)), updates, counters


def _counts(node: fx.Node, specification: OutputSpec) -> bool:
    """Whether an output counts a buffer up by one, which the requester does itself. Raises DocumentRefused."""
    if specification.kind != OutputKind.BUFFER_MUTATION:
        raise DocumentRefused(f"the model writes to {specification.target}: {specification.kind.name.lower()}")
    if node.meta["val"].dtype == torch.float32:
        return False
    if node.op != "call_function" or aten_name(node) != "add.Tensor" or node.args[1:] != (1,):
        raise DocumentRefused(f"the model changes the integer buffer {specification.target} other than by counting")
    return True


def _ancestors(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """These nodes and all that they are computed from."""
    found: set[fx.Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _tensor(program: ExportedProgram, specification: InputSpec) -> Tensor:
    target = str(specification.target)
    found = program.state_dict[target] if target in program.state_dict else program.constants.get(target)
    if not isinstance(found, Tensor):
        raise DocumentRefused(f"the model reads {target}, which is not a tensor")
    return found


def _content_name(tensor: Tensor) -> str:
    """A constant is named by what it is, so that the documents of training and evaluation agree on it."""
    array = tensor.detach().cpu().contiguous().numpy()
    description = f"{array.dtype}{array.shape}".encode()
    return "const." + blake3(description + array.tobytes()).hexdigest()[:16]
