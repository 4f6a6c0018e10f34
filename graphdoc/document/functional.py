"""Writes in place become values, and the updates of buffers outputs: a document is a pure function.

A write that nothing else can see (neither a view of the tensor nor its base is read afterwards) becomes the same
operator without the write. All others go through torch's own functionalisation, which follows views.
"""

import operator
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind

from graphdoc.document.compose import compose_operators
from graphdoc.document.foreign import find_foreign_operators, written_out
from graphdoc.document.kernels import batch_norm_training
from graphdoc.document.refusals import build_document_refusal, operator_name
from graphdoc.document.regions import flatten_regions
from graphdoc.errors import DocumentRefused

_BATCH_NORM: Final = "batch_norm.default"
_WHOSE: Final = {InputKind.PARAMETER: "the parameter", InputKind.USER_INPUT: "the data input"}


@dataclass
class Trace:
    """A flat graph without writes: its inputs, its results, and the new values of the buffers."""

    nodes: list[fx.Node]
    inputs: list[tuple[fx.Node, InputSpec]]
    results: list[Any]
    updates: dict[str, fx.Node] = field(default_factory=dict)
    counters: set[str] = field(default_factory=set)
    """Integer buffers that count by one and that a run does not compute."""


def build_functional_trace(program: ExportedProgram) -> Trace:
    """Returns the program as a pure function. Raises DocumentRefused."""
    graph = flatten_regions(program)
    compose_operators(graph)
    if find_foreign_operators(graph):
        return _functionalise_program(program, graph)
    writes = [node for node in graph.nodes if _is_write_in_place(node)]
    if writes:
        mates = _Mates(graph)
        roots = {entry.arg.name: entry for entry in program.graph_signature.input_specs}
        for node in writes:  # only buffers and values may be written
            for argument in mates.of(node.args[0]):
                entry = roots.get(argument.name)
                if argument.op == "placeholder" and entry is not None and entry.kind in _WHOSE:
                    whose = f"{_WHOSE[entry.kind]} {entry.target or entry.arg.name}"
                    raise build_document_refusal(node, f"writes to {whose}")
        if any(_is_seen_by_others(node, mates) for node in writes):
            return _functionalise_program(program, graph)
    return _Rewriting(graph, program).trace()


def _is_write_in_place(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


class _Mates:
    """The nodes of a graph whose tensors may share memory, and the order of all, each found once."""

    def __init__(self, graph: fx.Graph) -> None:
        self.order = {node: number for number, node in enumerate(graph.nodes)}
        self._by_storage: dict[int | None, list[fx.Node]] = {}
        for node in graph.nodes:
            self._by_storage.setdefault(_find_storage(node.meta.get("val")), []).append(node)

    def of(self, node: Any) -> list[fx.Node]:
        """Returns the nodes of one memory with this one, itself among them."""
        own = _find_storage(node.meta.get("val"))
        return [] if own is None else self._by_storage[own]


def _find_storage(value: Any) -> int | None:
    return value.untyped_storage()._cdata if isinstance(value, Tensor) else None


def _same_tensor(node: Any) -> Any:
    """Returns the first value of a chain of writes in place."""
    while _is_write_in_place(node) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def _is_seen_by_others(write: fx.Node, mates: _Mates) -> bool:
    """Returns whether another view of the written tensor is read later, or no operator gives the value without a
    write."""
    order, target = mates.order, write.args[0]
    values = [argument.meta.get("val") for argument in write.all_input_nodes]
    floats = {value.dtype for value in values if isinstance(value, Tensor) and value.is_floating_point()}
    if _find_counterpart(write) is None or not isinstance(target, fx.Node) or len(floats) > 1:
        return True  # among several types a write converts, and the operator without a write would not
    for other in mates.of(target):
        another = order[other] < order[write] and _same_tensor(other) is not _same_tensor(target)
        if another and any(order[user] > order[write] for user in other.users):
            return True
    return False


def _find_counterpart(write: fx.Node) -> Any:
    """Returns the operator whose result this one writes; None without one."""
    schema = write.target._schema  # type: ignore[union-attr]
    packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::").removesuffix("_"), None)
    overload = schema.overload_name or "default"
    return getattr(packet, overload, None) if packet is not None and schema.name.endswith("_") else None


class _Rewriting:
    """One pass over a graph whose writes are visible to no other node."""

    def __init__(self, graph: fx.Graph, program: ExportedProgram) -> None:
        self._graph = graph
        self._order = {node: number for number, node in enumerate(graph.nodes)}
        places = [node for node in graph.nodes if node.op == "placeholder"]
        self._inputs = list(zip(places, program.graph_signature.input_specs, strict=True))
        self._targets = {node: str(entry.target) for node, entry in self._inputs}
        self._newest: dict[fx.Node, list[str]] = {node: [target] for node, target in self._targets.items()}
        """By node: the inputs whose last value it is."""
        self._updates: dict[str, fx.Node] = {}
        self._counters: set[str] = set()

    def trace(self) -> Trace:
        for node in list(self._graph.nodes):
            if _is_write_in_place(node):
                self._rewrite_in_place(node)
                continue
            normalises = node.op == "call_function" and operator_name(node) == _BATCH_NORM
            if normalises and node.args[5] and node.args[3] is not None:  # it keeps statistics
                self._batch_norm(node)
        output = next(iter(reversed(self._graph.nodes)))
        results = list(output.args[0])
        return Trace(list(self._graph.nodes), self._inputs, results, self._updates, self._counters)

    def _rewrite_in_place(self, write: fx.Node) -> None:
        target = write.args[0]
        if not isinstance(target, fx.Node):
            raise build_document_refusal(write, "writes to what is not a value")
        if target in self._targets and not target.meta["val"].is_floating_point():
            self._record_counter(write, target)
            return
        with self._graph.inserting_before(write):
            value = self._graph.call_function(_find_counterpart(write), write.args, write.kwargs)
        value.meta = dict(write.meta)
        write.replace_all_uses_with(value)
        self._graph.erase_node(write)
        self._order[value] = self._order[write]
        self._replace_value(target, value)

    def _record_counter(self, write: fx.Node, counter: fx.Node) -> None:
        later = [user for user in counter.users if self._order[user] > self._order[write]]
        if not _is_counting_write(write) or not all(map(_is_counting_write, [*write.users, *later])):
            raise build_document_refusal(
                write, f"changes the integer buffer {self._targets[counter]} other than by counting"
            )
        self._counters.add(self._targets[counter])
        write.replace_all_uses_with(counter)
        self._graph.erase_node(write)

    def _batch_norm(self, node: fx.Node) -> None:
        tensor, weight, bias, mean, variance, _, momentum, eps, *_ = node.args
        if not isinstance(mean, fx.Node) or not isinstance(variance, fx.Node):
            raise build_document_refusal(node, "keeps statistics in what is not a value")
        with self._graph.inserting_before(node):
            arguments = (tensor, weight, bias, mean, variance, momentum, eps)
            whole = self._graph.call_function(batch_norm_training, arguments)
            parts = [self._graph.call_function(operator.getitem, (whole, place)) for place in range(3)]
        for part, like in zip((whole, *parts), (node, node, mean, variance), strict=True):
            part.meta = {**node.meta, "val": like.meta["val"]}
            self._order[part] = self._order[node]
        node.replace_all_uses_with(parts[0])
        self._graph.erase_node(node)
        self._replace_value(mean, parts[1])
        self._replace_value(variance, parts[2])

    def _replace_value(self, old: fx.Node, new: fx.Node) -> None:
        """Replaces `old` by `new` for all later readers; a buffer's last value is its update."""
        later = self._order[new]
        for user in [user for user in old.users if self._order[user] > later]:
            user.replace_input_with(old, new)
        targets = self._newest.pop(old, [])
        self._newest[new] = targets
        self._updates.update(dict.fromkeys(targets, new))


def _functionalise_program(program: ExportedProgram, graph: fx.Graph) -> Trace:
    """Functionalises the program by torch; that silently drops regions, and none are left."""
    program._graph_module = fx.GraphModule(program.graph_module, graph)
    table = find_foreign_operators(graph)
    decomposed = written_out(program, table)
    while further := find_foreign_operators(decomposed.graph):
        decomposed = written_out(decomposed, further)
    compose_operators(decomposed.graph)
    specifications = decomposed.graph_signature
    nodes = list(decomposed.graph.nodes)
    places = [node for node in nodes if node.op == "placeholder"]
    trace = Trace(nodes, list(zip(places, specifications.input_specs, strict=True)), [])
    returned = next(node for node in nodes if node.op == "output").args[0]
    for node, entry in zip(returned, specifications.output_specs, strict=True):
        if entry.kind == OutputKind.USER_OUTPUT:
            trace.results.append(node)
        elif entry.kind == OutputKind.TOKEN:
            raise build_document_refusal(
                next(one for one in graph.nodes if one.target in table), "is not in the language"
            )
        elif entry.kind != OutputKind.BUFFER_MUTATION:
            raise DocumentRefused(f"the model writes to {entry.target}: {entry.kind.name.lower()}")
        elif node.meta["val"].is_floating_point():
            trace.updates[str(entry.target)] = node
        else:
            while node.op != "placeholder":
                if operator_name(node) != "add.Tensor" or node.args[1:] != (1,):
                    detail = f"changes the integer buffer {entry.target} other than by counting"
                    raise build_document_refusal(node, detail)
                node = node.args[0]
            trace.counters.add(str(entry.target))
    return trace


def _is_counting_write(write: fx.Node) -> bool:
    return operator_name(write) == "add_.Tensor" and write.args[1:] == (1,)
