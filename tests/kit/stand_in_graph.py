"""A stand-in for CUDA graphs on a processor."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WAITS = (torch.ops.aten._local_scalar_dense.default,)


@dataclass
class _Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A stand-in for a CUDA graph: every call with its tensors, which a replay computes anew at their places."""

    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        with_elements = any(isinstance(leaf, Tensor) and not leaf.is_meta for leaf in tree_leaves((args, kwargs)))
        if func in WAITS and with_elements:
            raise RuntimeError("operation not permitted when stream is capturing")
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, dict(kwargs or {}), result))
        return result

    def replay(self) -> None:
        with torch.no_grad():
            for func, args, named, result in self.calls:
                again = func(*args, **named)
                for own, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                    if isinstance(own, Tensor) and own.data_ptr() != new.data_ptr():
                        own.copy_(new)


def record_on_tape(compute: Callable[[], dict[str, Tensor]]) -> tuple[dict[str, Tensor], Callable[[], None]]:
    with _Tape() as tape:
        results = compute()
    for tensor in results.values():
        tensor.detach().zero_()  # whoever does not replay has nothing
    return results, tape.replay
