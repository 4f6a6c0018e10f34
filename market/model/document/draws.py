"""Replaces a module's own random draws by those of the document: the n-th draw is site n."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gradmarket.market.errors import DocumentRefused
from gradmarket.market.model.document import randomness

_ATEN: Final = torch.ops.aten


class HashedDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, takes what torch's kernels draw from the hash, below autograd and for every call of the module."""

    def __init__(self, seed: bytes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed = seed
        self._site = -1

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags or func in _DRY:
            return func(*args, **(kwargs or {}))
        if func not in _DRAWS:
            raise DocumentRefused(f"the module draws by {func}, which the language does not have")
        self._site += 1
        return _DRAWS[func](self._site, self._seed, args, kwargs or {})


def _kept(site: int, seed: bytes, args: Sequence[Any], _named: Any) -> Tensor:
    """Overwrites a mask with ones, each with the probability to stay, and zeros elsewhere, as dropout does."""
    mask, stays = args[0], float(args[1]) if len(args) > 1 else 0.5
    return torch.as_tensor(mask.copy_(randomness.kept(mask, 1.0 - stays, site, seed)))


def _bernoulli(site: int, seed: bytes, args: Sequence[Any], _named: Any) -> Tensor:
    return randomness.bernoulli(args[0], args[0], site, seed)


def _bernoulli_p(site: int, seed: bytes, args: Sequence[Any], _named: Any) -> Tensor:
    return randomness.bernoulli(args[0], float(args[1]), site, seed)


def _uniform(site: int, seed: bytes, args: Sequence[Any], named: Any) -> Tensor:
    return randomness.uniform(args[0], named.get("dtype") or args[0].dtype, site, seed)


def _normal(site: int, seed: bytes, args: Sequence[Any], named: Any) -> Tensor:
    return randomness.normal(args[0], named.get("dtype") or args[0].dtype, site, seed)


def _uniform_of(site: int, seed: bytes, args: Sequence[Any], named: Any) -> Tensor:
    like = torch.zeros(args[0], dtype=named.get("dtype"))
    return randomness.uniform(like, like.dtype, site, seed)


def _normal_of(site: int, seed: bytes, args: Sequence[Any], named: Any) -> Tensor:
    like = torch.zeros(args[0], dtype=named.get("dtype"))
    return randomness.normal(like, like.dtype, site, seed)


_DRY: Final = (
    _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default,
)
"""Kernels that are tagged as random, but are chosen only where nothing is drawn."""
_DRAWS: Final[dict[Any, Callable[[int, bytes, Sequence[Any], Any], Tensor]]] = {
    _ATEN.bernoulli_.float: _kept,
    _ATEN.bernoulli.default: _bernoulli,
    _ATEN.bernoulli.p: _bernoulli_p,
    _ATEN.rand_like.default: _uniform,
    _ATEN.randn_like.default: _normal,
    _ATEN.rand.default: _uniform_of,
    _ATEN.randn.default: _normal_of,
}
