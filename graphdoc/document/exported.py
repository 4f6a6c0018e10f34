"""The contents of an exported program: the nodes that an answer needs, its tensors, and their order in memory."""

from collections.abc import Iterable

from blake3 import blake3
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputSpec

from graphdoc.document.refusals import operator_name, without_elements
from graphdoc.errors import DocumentRefused


def list_ancestors(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """Returns these nodes and all from which they are computed."""
    constant: set[fx.Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in constant:
            constant.add(node)
            waiting += node.all_input_nodes
    return constant


def is_empty(node: fx.Node) -> bool:
    """Returns whether the node gives a tensor without elements, for any batch."""
    value = node.meta.get("val")
    return isinstance(value, Tensor) and any(type(length) is int and length == 0 for length in value.shape)


def leave_out_empty(node: fx.Node) -> None:
    """Drops empty parts of a concatenation, such as a cache before its first word. Raises DocumentRefused elsewhere."""
    if is_empty(node):
        return
    if operator_name(node) != "cat.default":
        raise without_elements(node)
    parts, *others = node.args
    node.args = ([part for part in parts if not is_empty(part)], *others)  # type: ignore[union-attr, arg-type]


def order_in_memory(tensor: Tensor) -> list[int] | None:
    """Returns the dimensions from the outermost in memory to the innermost; None where that is their order, or
    unclear."""
    if tensor.is_contiguous() and len(tensor.stride()) < 4:
        return None
    stride, size = tensor.stride(), tensor.shape
    order = sorted(range(tensor.dim()), key=lambda place: (-stride[place], size[place] == 1))
    dense = tensor.permute(order)
    same = dense.is_contiguous() and dense.contiguous().stride() == tuple(stride[place] for place in order)
    return order if same and order != list(range(tensor.dim())) else None


def tensor_of(program: ExportedProgram, specification: InputSpec) -> Tensor:
    target = str(specification.target)
    constant = program.state_dict[target] if target in program.state_dict else program.constants.get(target)
    if not isinstance(constant, Tensor):
        raise DocumentRefused(f"the model reads {target}, which is not a tensor")
    return constant


def content_name(tensor: Tensor) -> str:
    """Names a constant by its content, so that the documents of training and evaluation agree on it."""
    array = tensor.detach().cpu().contiguous().numpy()
    description = f"{array.dtype}{array.shape}".encode()
    return "const." + blake3(description + array.tobytes()).hexdigest()[:16]
