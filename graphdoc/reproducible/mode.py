"""Computes the calls within its block by reproducible kernels alone, forward and backward, and refuses the rest."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves

from graphdoc.errors import DocumentRefused
from graphdoc.reproducible.exact import hold_scratch
from graphdoc.reproducible.kernel_table import KERNELS
from graphdoc.reproducible.once_rounded import EXACT

_HALVES: Final = (torch.bfloat16, torch.float16)


@contextmanager
def compute_reproducibly() -> Iterator[None]:
    """Computes every operator of torch called within the block reproducibly. Raises DocumentRefused for others.

    Attention is computed unfused, by products and a softmax. A nested block changes nothing.
    """
    if any(isinstance(mode, ReproducibleMode) for mode in _get_current_dispatch_mode_stack()):
        yield
        return
    with sdpa_kernel(SDPBackend.MATH), hold_scratch(), ReproducibleMode():  # type: ignore[no-untyped-call]
        yield


class ReproducibleMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Receives every call of an ATen operator below autograd."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        name = func.overloadpacket.__name__
        dtypes = [leaf.dtype for leaf in tree_leaves((args, given)) if isinstance(leaf, Tensor)]
        if any(dtype in _HALVES for dtype in (*dtypes, given.get("dtype"))):
            raise DocumentRefused(f"{name}: 16-bit floats have no reproducible kernel: set precision to fp32")
        if name in EXACT or name.removesuffix("_") in EXACT:
            return func(*args, **given)
        floats = any(dtype.is_floating_point for dtype in dtypes)
        kernel = KERNELS.get(name) or KERNELS.get(name.removesuffix("_"))
        if kernel is not None and (floats or name == "mean"):
            return self._apply_kernel(func, kernel, args, given)
        if floats:
            raise DocumentRefused(
                f"{name} has no reproducible kernel: leave out arithmetic, or build it of operators that have one"
            )
        return func(*args, **given)

    @staticmethod
    def _apply_kernel(func: Any, kernel: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> Any:
        result = kernel(*args, **given)
        if func.overloadpacket.__name__.endswith("_"):
            args[0].copy_(result)
            return args[0]
        return result
