"""The cost of a document before it is run: forward and backward on meta tensors, which have shapes and no elements."""

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gradmarket.market.errors import DocumentRefused
from gradmarket.market.model.document.calls import TORCH_TYPES, Operator
from gradmarket.market.model.document.interpret import Program, gradients
from gradmarket.market.model.document.operators.cuda import missing
from gradmarket.market.model.document.schema import Input
from gradmarket.market.model.figures import Bound

BACKWARD: Final = 2
"""The backward pass of every operator costs at most twice its forward pass: one gradient for each of two factors."""


@dataclass(frozen=True)
class Limits:
    """What one pass may cost: floating-point operations, and bytes alive at once."""

    operations: int = 10**15
    peak_bytes: int = 2**36


def bound(program: Program, rows: int, limits: Limits = Limits()) -> Bound:
    """The cost of one pass over `rows` rows. Raises DocumentRefused over the limits, or where shapes do not fit."""
    meter = _Meter(limits)
    state, data = _meta_inputs(program, rows)
    with meter:
        for tensor in (*state.values(), *data.values()):
            meter.hold(tensor)
        results = program.run(state, data, bytes(32), meter.count)
        trainable = [state[entry.name] for entry in program.document.trainable]
        if trainable:
            gradients(results.loss, trainable)
    return Bound(rows, meter.operations, meter.peak, meter.only_on_cpu)


def _meta_inputs(program: Program, rows: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    state, data = {}, {}
    for entry in program.document.inputs:
        if entry.kind == "data":
            data[entry.name] = _meta(entry, (rows, *entry.shape))
        else:
            state[entry.name] = _meta(entry, entry.shape)
    return state, data


def _meta(entry: Input, shape: Sequence[int]) -> Tensor:
    return torch.empty(shape, dtype=TORCH_TYPES[entry.dtype], device="meta", requires_grad=entry.grad)


class _Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations of each node, and the bytes of every storage from its birth to its death."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = 0
        self.peak = 0
        self.only_on_cpu = ""
        self._limits = limits
        self._live = 0
        self._held: set[int] = set()

    def count(self, operator: Operator, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        """A node ran: its forward and its backward cost, and what CUDA lacks for it."""
        self.operations += (1 + BACKWARD) * operator.entry.cost(arguments, results)
        if self.operations > self._limits.operations:
            raise DocumentRefused(f"more than {self._limits.operations:.3g} operations a pass")
        self.only_on_cpu = self.only_on_cpu or missing(operator.key, arguments, results)

    def hold(self, tensor: Tensor) -> None:
        """The tensor's storage is alive until nothing refers to it."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._held:
            return
        self._held.add(key)
        size = storage.nbytes()
        weakref.finalize(storage, self._release, key, size).atexit = False
        self._live += size
        self.peak = max(self.peak, self._live)
        if self._live > self._limits.peak_bytes:
            raise DocumentRefused(f"more than {self._limits.peak_bytes:.3g} bytes at once")

    def _release(self, key: int, size: int) -> None:
        self._held.discard(key)
        self._live -= size

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.hold(leaf)
        return result
