"""Replaces `no_grad` and `autocast` regions by explicit nodes: the result is a flat graph.

In `no_grad` every value from outside is detached. In `autocast` a node converts every argument that autocast would
convert; these are found by observation, not copied from torch's lists. A parameter is converted once in a region, as
autocast's cache does. So a document has no modes: a node computes the same at every place.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils._python_dispatch import TorchDispatchMode

from graphdoc.document.refusals import build_document_refusal
from graphdoc.document.sequences import ATEN

_GRAD: Final = "wrap_with_set_grad_enabled"
_AUTOCAST: Final = "wrap_with_autocast"

Copies = dict[fx.Node, Any]
"""Traced node -> node of the flat graph, or a tuple of them where a region returns several."""


@dataclass
class _Precision:
    """One autocast region, and the values converted in it."""

    device: str
    dtype: torch.dtype
    converted: dict[tuple[fx.Node, torch.dtype], fx.Node] = field(default_factory=dict)


def flatten_regions(program: ExportedProgram) -> fx.Graph:
    """Returns the program's graph without regions. Raises DocumentRefused, naming a region of another kind."""
    flattening = _Flattening(program)
    flattening.copy_region(program.graph_module, {}, None, graded=True)
    return flattening.graph


class _Flattening:
    def __init__(self, program: ExportedProgram) -> None:
        self.graph = fx.Graph()
        self._program = program
        self._trained = {
            str(entry.arg.name)
            for entry in program.graph_signature.input_specs
            if entry.kind == InputKind.PARAMETER and program.state_dict[str(entry.target)].requires_grad
        }
        """The placeholders of parameters that get a gradient."""
        self._graded: set[fx.Node] = set()
        """Values through which a gradient may flow."""

    def copy_region(self, module: fx.GraphModule, copies: Copies, precision: _Precision | None, graded: bool) -> Any:
        """Copies the nodes of one region, and returns its results; `copies` contains its arguments."""
        for node in module.graph.nodes:
            if node.op == "placeholder":
                if node not in copies:
                    copies[node] = self._copy_node(node, copies)
            elif node.op == "output":
                return self._copy_results(node, copies)
            elif node.op == "call_function":
                copies[node] = self._copy_call(module, node, copies, precision, graded)
        return ()

    def _copy_results(self, node: fx.Node, copies: Copies) -> Any:
        results = fx.map_arg(node.args[0], copies.__getitem__)
        if node.graph is self._program.graph:
            self.graph.output(results)
        return results

    def _copy_call(
        self, module: fx.GraphModule, node: fx.Node, copies: Copies, precision: _Precision | None, graded: bool
    ) -> Any:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return self._copy_inner_region(module, node, copies, precision, graded)
        if node.target is operator.getitem and isinstance(copies[_read_source(node)], tuple | list):
            return copies[_read_source(node)][node.args[1]]
        copy = self._copy_node(node, copies)
        if precision is not None:
            self._convert_arguments(copy, precision)
        return copy

    def _copy_node(self, node: fx.Node, copies: Copies) -> fx.Node:
        copy = self.graph.node_copy(node, copies.__getitem__)
        copy.target = ATEN.get(copy.target, copy.target)
        stopped = node.target is torch.ops.aten.detach.default
        if node.name in self._trained or (not stopped and any(n in self._graded for n in copy.all_input_nodes)):
            self._graded.add(copy)
        return copy

    def _copy_inner_region(
        self, module: fx.GraphModule, node: fx.Node, copies: Copies, precision: _Precision | None, graded: bool
    ) -> Any:
        """Returns the results of a region inside this one."""
        name = str(node.target).rpartition(".")[2]
        if name == _GRAD:
            enabled, inside, *arguments = node.args
            if enabled and not graded:
                raise build_document_refusal(
                    node, "turns gradients on inside no_grad, which the language does not have", "enable_grad"
                )
            graded = bool(enabled)
        elif name == _AUTOCAST:
            device, dtype, enabled, _, inside, *arguments = node.args
            precision = self._build_precision(str(device), dtype, precision) if enabled else None
        else:
            raise build_document_refusal(node, "is a region that the language does not have", name)
        submodule = module.get_submodule(str(getattr(inside, "target", inside)))
        values = [self._detach_outside(copies[argument], graded) for argument in arguments]  # type: ignore[index]
        places = [entry for entry in submodule.graph.nodes if entry.op == "placeholder"]  # type: ignore[union-attr]
        inner: Copies = dict(zip(places, values, strict=True))
        return self.copy_region(submodule, inner, precision, graded)  # type: ignore[arg-type]

    def _build_precision(self, device: str, dtype: Any, outer: _Precision | None) -> _Precision:
        precision = _Precision(device, dtype or torch.get_autocast_dtype(device))
        if outer is not None and outer.device == device:
            precision.converted = outer.converted
        return precision

    def _detach_outside(self, value: fx.Node, graded: bool) -> fx.Node:
        if graded or value not in self._graded:
            return value
        detached = self.graph.call_function(torch.ops.aten.detach.default, (value,))
        detached.meta = {**value.meta}
        return detached

    def _convert_arguments(self, node: fx.Node, precision: _Precision) -> None:
        """Inserts nodes before this one that convert its arguments as autocast does tensors without elements."""
        if not isinstance(node.target, torch._ops.OpOverload):
            return
        nodes = {id(argument.meta["val"]): argument for argument in node.all_input_nodes}
        arguments, named = fx.map_arg((node.args, node.kwargs), lambda argument: argument.meta["val"])
        with torch.autocast(precision.device, dtype=precision.dtype, cache_enabled=False), _Conversions() as seen:
            node.target(*arguments, **named)
        conversions = {nodes[source]: dtype for source, dtype in seen.casts if source in nodes}
        if len(conversions) != len(seen.casts):
            values = ((argument, argument.meta["val"]) for argument in node.all_input_nodes)
            floats = [one for one, value in values if isinstance(value, Tensor) and value.dtype == torch.float32]
            conversions = dict.fromkeys(floats, precision.dtype)
        with self.graph.inserting_before(node):
            for argument, dtype in conversions.items():
                node.replace_input_with(argument, self._insert_conversion(argument, dtype, precision))

    def _insert_conversion(self, value: fx.Node, dtype: torch.dtype, precision: _Precision) -> fx.Node:
        kept = precision.converted.get((value, dtype))
        if kept is not None:
            return kept
        converted = self.graph.call_function(torch.ops.aten.to.dtype, (value, dtype))
        converted.meta = {**value.meta, "val": value.meta["val"].to(dtype)}
        if value in self._graded:
            self._graded.add(converted)
        if value.op == "placeholder":
            precision.converted[(value, dtype)] = converted
        return converted


class _Conversions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records every conversion of an element type: the id of the tensor, and the new type."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.casts: list[tuple[int, torch.dtype]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if func is torch.ops.aten._to_copy.default and named.get("dtype") is not None:
            self.casts.append((id(args[0]), named["dtype"]))
        return func(*args, **named)


def _read_source(node: fx.Node) -> fx.Node:
    source = node.args[0]
    if not isinstance(source, fx.Node):
        raise build_document_refusal(node, "reads something that is not a value")
    return source
