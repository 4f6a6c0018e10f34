"""Counts the work on meta tensors: operations, bytes alive at once, and steps, so that counting itself ends."""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graphdoc.document.calls import OperatorCall
from graphdoc.document.shape_cache import ShapeCache
from graphdoc.errors import DocumentRefused
from graphdoc.operators.cuda import find_missing_kernel

BACKWARD: Final = 2
"""The backward pass of every operator costs at most twice its forward pass: one gradient for each of two factors."""
STEPS: Final = 2_000
STEPS_A_NODE: Final = 60
"""The most calls of ATen that bounding a document takes: an honest node takes some ten, forward and backward."""
ALIGNMENT: Final = 64
WORKSPACES: Final = {
    torch.ops.aten.convolution.default: 1.0,
    torch.ops.aten.convolution_backward.default: 1.0,
    torch.ops.aten.bmm.default: 0.5,
    torch.ops.aten.bmm.out: 0.5,
    torch.ops.aten.im2col.default: 0.5,
    torch.ops.aten.col2im.default: 0.5,
    torch.ops.aten.sort.default: 1.0,
    torch.ops.aten.sort.stable: 1.0,
    torch.ops.aten.topk.default: 1.0,
    torch.ops.aten.native_batch_norm_backward.default: 0.5,
    torch.ops.aten.soft_margin_loss.default: 1.5,
    torch.ops.aten.soft_margin_loss_backward.default: 1.0,
}
"""A kernel's own memory while it runs, as a share of its arguments and results: copies in other orders."""


class TooMuch(DocumentRefused):
    """The graph document costs too much."""


@dataclass(frozen=True)
class Limits:
    """The limits of one pass: floating-point operations, and bytes alive at once."""

    operations: int = 10**15
    peak_bytes: int = 2**36


USUAL: Final = Limits()


class Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operations of each node, and the bytes of every storage from its birth to its death.

    `nodes` is the number of the document's nodes, which sets the number of permitted calls of ATen. A node's backward
    pass costs `backward` times its forward pass. Raises TooMuch over a limit.
    """

    def __init__(self, limits: Limits, nodes: int, backward: int = BACKWARD) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = 0
        self.peak = 0
        self.only_on_cpu = ""
        self._limits, self._backward = limits, backward
        self._steps_left = STEPS + STEPS_A_NODE * nodes
        self._live = 0
        self._held: set[int] = set()
        self._shapes = ShapeCache()

    @property
    def live(self) -> int:
        """Bytes that are alive now."""
        return self._live

    def count(self, operator: OperatorCall, arguments: Sequence[Any], results: Sequence[Any], times: int) -> None:
        """Counts `times` nodes that ran: their forward and backward cost, and the kernels that CUDA lacks for them."""
        self.operations += times * (1 + self._backward) * operator.entry.cost(arguments, results)
        if self.operations > self._limits.operations:
            raise TooMuch(f"more than {self._limits.operations:.3g} operations a pass")
        self.only_on_cpu = self.only_on_cpu or find_missing_kernel(operator.key, arguments, results)

    def hold(self, tensor: Tensor) -> None:
        """Counts the tensor's storage as alive until nothing refers to it."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._held:
            return
        self._held.add(key)
        size = -(-storage.nbytes() // ALIGNMENT) * ALIGNMENT
        weakref.finalize(storage, self._release_storage, key, size).atexit = False
        self._live += size
        self._record_peak(self._live)

    def _record_peak(self, size: int) -> None:
        self.peak = max(self.peak, size)
        if size > self._limits.peak_bytes:
            raise TooMuch(f"more than {self._limits.peak_bytes:.3g} bytes at once")

    def _release_storage(self, key: int, size: int) -> None:
        self._held.discard(key)
        self._live -= size

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise TooMuch("too many steps to count in time: write fewer, larger nodes")
        result = self._shapes.call_cached(func, args, kwargs or {})
        for leaf in _iterate_leaf_tensors(result):
            self.hold(leaf)
        if func in WORKSPACES:
            taken = sum(leaf.nbytes for leaf in _iterate_leaf_tensors((args, result)))
            self._record_peak(self._live + int(WORKSPACES[func] * taken))
        return result


def _iterate_leaf_tensors(values: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))
