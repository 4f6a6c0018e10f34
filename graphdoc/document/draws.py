"""Replaces a module's own random draws by those of the document: the n-th draw is site n."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from graphdoc.document import randomness
from graphdoc.errors import DocumentRefused

_ATEN: Final = torch.ops.aten
Draw = Callable[[Tensor, torch.dtype, int, bytes], Tensor]
"""(tensor of the shape, element type, site, seed) -> numbers."""


class HashedDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, replaces draws of torch's kernels by the hash's, below autograd and for every call of the
    module."""

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


def _write_kept_mask(site: int, seed: bytes, args: Sequence[Any], _named: Any) -> Tensor:
    """Overwrites a mask with ones, each with the probability to stay, and zeros elsewhere, as dropout does."""
    mask, stays = args[0], float(args[1]) if len(args) > 1 else 0.5
    return torch.as_tensor(mask.copy_(randomness.draw_kept_mask(mask, 1.0 - stays, site, seed)))


def _draw_like(draw: Draw, site: int, seed: bytes, args: Sequence[Any], named: Any) -> Tensor:
    return draw(args[0], named.get("dtype") or args[0].dtype, site, seed)


def _draw_shape(draw: Draw, site: int, seed: bytes, args: Sequence[Any], named: Any) -> Tensor:
    like = torch.zeros(args[0], dtype=named.get("dtype"))
    return draw(like, like.dtype, site, seed)


def _read_setting(args: Sequence[Any], named: Any, place: int, name: str, usual: float) -> float:
    return float(args[place] if len(args) > place else named.get(name, usual))


def _write_uniform(site: int, seed: bytes, args: Sequence[Any], named: Any) -> Tensor:
    low, high = _read_setting(args, named, 1, "from", 0.0), _read_setting(args, named, 2, "to", 1.0)
    drawn = randomness.draw_uniform(args[0], args[0].dtype, site, seed)
    return torch.as_tensor(args[0].copy_(drawn * (high - low) + low))


def _write_normal(site: int, seed: bytes, args: Sequence[Any], named: Any) -> Tensor:
    mean, deviation = _read_setting(args, named, 1, "mean", 0.0), _read_setting(args, named, 2, "std", 1.0)
    drawn = randomness.draw_normal(args[0], args[0].dtype, site, seed)
    return torch.as_tensor(args[0].copy_(drawn * deviation + mean))


def _write_exponential(site: int, seed: bytes, args: Sequence[Any], named: Any) -> Tensor:
    rate = _read_setting(args, named, 1, "lambd", 1.0)
    drawn = randomness.draw_uniform(args[0], args[0].dtype, site, seed)
    least = drawn.neg().log1p().neg().clamp_min(randomness.LEAST_EXPONENTIAL)
    return torch.as_tensor(args[0].copy_(least / rate))


_DRY: Final = (
    _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default,
)
"""Kernels that are tagged as random, but are chosen only where nothing is drawn."""
_DRAWS: Final[dict[Any, Callable[[int, bytes, Sequence[Any], Any], Tensor]]] = {
    _ATEN.bernoulli_.float: _write_kept_mask,
    _ATEN.uniform_.default: _write_uniform,
    _ATEN.normal_.default: _write_normal,
    _ATEN.exponential_.default: _write_exponential,
    _ATEN.bernoulli.default: lambda site, seed, args, _: randomness.draw_bernoulli(args[0], args[0], site, seed),
    _ATEN.bernoulli.p: lambda site, seed, args, _: randomness.draw_bernoulli(args[0], float(args[1]), site, seed),
    _ATEN.rand_like.default: partial(_draw_like, randomness.draw_uniform),
    _ATEN.randn_like.default: partial(_draw_like, randomness.draw_normal),
    _ATEN.rand.default: partial(_draw_shape, randomness.draw_uniform),
    _ATEN.randn.default: partial(_draw_shape, randomness.draw_normal),
}
