"""Matrix products and convolutions of precisions that torch has no good kernels for, forward and backward.

TF32 is float32 with 10 bits of mantissa in place of 23 (NVIDIA A100 whitepaper, 2020): a card's tensor cores round the
operands of a product to it and add in float32. A processor has no such kernel, so here operands are rounded first, to
the nearest, ties to even, and float32 kernels do the rest: every class computes one function, up to the last bits.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_map_only

_ATEN: Final = torch.ops.aten
OPERANDS: Final[Mapping[Any, range]] = {
    _ATEN.mm.default: range(2),
    _ATEN.bmm.default: range(2),
    _ATEN.addmm.default: range(1, 3),
    _ATEN.baddbmm.default: range(1, 3),
    _ATEN.convolution.default: range(2),
    _ATEN.convolution_backward.default: range(3),
}
"""The arguments of each product that are multiplied."""
_KEPT_BITS: Final = 13
"""Bits of a float32's mantissa that TF32 lacks."""


@contextmanager
def compute_in_tf32(device: str) -> Iterator[None]:
    """Rounds the operands of products and convolutions to TF32 within the block, by a card's own kernels there.

    A nested block changes nothing. `device`: the type of the tensors' device.
    """
    if device == "cuda":
        before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        _allow_tf32(True, True)
        try:
            yield
        finally:
            _allow_tf32(*before)
    elif any(isinstance(mode, _RoundedOperands) for mode in _get_current_dispatch_mode_stack()):
        yield
    else:
        with _RoundedOperands():  # type: ignore[no-untyped-call]
            yield


def _allow_tf32(products: bool, convolutions: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = products
    torch.backends.cudnn.allow_tf32 = convolutions


def round_to_tf32(values: Tensor) -> Tensor:
    """Returns a float32 tensor rounded to TF32; numbers that are not finite stay. On meta it takes the same memory."""
    if values.is_meta:
        _spare, rounded = torch.empty_like(values), torch.empty_like(values)
        return rounded
    bits = values.view(torch.int32)
    moved = (bits >> _KEPT_BITS).bitwise_and_(1).add_((1 << _KEPT_BITS - 1) - 1).add_(bits)
    rounded = moved.bitwise_and_(-1 << _KEPT_BITS).view(torch.float32)
    return torch.where(values.isfinite(), rounded, values)


def multiply_whole(precision: str) -> AbstractContextManager[object]:
    """Returns a context in which a bf16 module and its document, compared there, use kernels that are fast here."""
    return _WholeProducts() if precision == "bf16" else nullcontext()  # type: ignore[no-untyped-call]


class _Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Receives every call of an ATen operator below autograd; `multiply` computes those of OPERANDS."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in OPERANDS and isinstance(args[OPERANDS[func].start], Tensor):
            return self.multiply(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    @abstractmethod
    def multiply(self, func: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """Returns the product of `func`, one of OPERANDS."""


class _RoundedOperands(_Products):  # type: ignore[no-untyped-call]
    def multiply(self, func: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        places = OPERANDS[func]
        if args[places.start].dtype != torch.float32:
            return func(*args, **named)
        return func(*(round_to_tf32(value) if place in places else value for place, value in enumerate(args)), **named)


class _WholeProducts(_Products):  # type: ignore[no-untyped-call]
    """Computes products of 16-bit floats by float32 kernels, and rounds each result once.

    Kernels of AVX2 for 16-bit products take up to 40 times as long. Their last bits differ: only results that were both
    computed here are compared.
    """

    def multiply(self, func: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        half = args[OPERANDS[func].start].dtype
        if half not in (torch.bfloat16, torch.float16):
            return func(*args, **named)
        whole = tree_map_only(Tensor, lambda value: value.float() if value.dtype == half else value, args)
        return tree_map_only(Tensor, lambda value: value.to(half), func(*whole, **named))
