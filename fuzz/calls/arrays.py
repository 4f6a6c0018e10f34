"""Tensors for calls, each between borders that show writes to them, and a heap with known old bytes."""

import ctypes
import math
from typing import Any, Final

import torch
from torch import Tensor

from fuzz.calls.recipes import Made
from graphdoc.document.calls import TORCH_TYPES

POISONS: Final = (0x5A, 0xC3)
"""The filling of fresh and freed memory, and of the borders of tensors, in one run and in the other."""
BORDER: Final = 256
"""Bytes before and after a tensor: a multiple of every alignment that a kernel asks for."""
_PALETTE: Final = 61
_MALLOPT: Final = ctypes.CDLL(None).mallopt
_PERTURB, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -6, -3, -1


class Arrays:
    """The tensors of one call, with the memory around them. Freshly made ones are the same at every poison."""

    def __init__(self, poison: int) -> None:
        self._poison = poison
        self._held: list[tuple[Tensor, int]] = []

    def made(self, value: Any) -> Any:
        """An argument with its tensors made."""
        if isinstance(value, list):
            return [self.made(part) for part in value]
        return self._tensor(value) if isinstance(value, dict) else value

    def touched(self) -> bool:
        """Whether anything wrote beyond a tensor."""
        border = bytes([self._poison]) * BORDER
        return any(
            memory[:BORDER].numpy().tobytes() != border or memory[BORDER + size :].numpy().tobytes() != border
            for memory, size in self._held
        )

    def _tensor(self, made: Made) -> Tensor:
        dtype, count = TORCH_TYPES[made["dtype"]], math.prod(made["shape"])
        numbers = _palette(made["fill"], dtype)
        numbers = numbers[:count] if count <= _PALETTE else numbers.repeat(-(-count // _PALETTE))[:count]
        size = count * dtype.itemsize
        memory = torch.full((size + 2 * BORDER,), self._poison, dtype=torch.uint8)
        within = memory[BORDER : BORDER + size].view(dtype)
        within.copy_(numbers)
        self._held.append((memory, size))
        laid = _laid(within, made)
        return laid.requires_grad_() if made["grad"] and dtype.is_floating_point else laid


def _laid(within: Tensor, made: Made) -> Tensor:
    """In rows, turned about, with gaps, or as one row that stands for all."""
    shape, layout = made["shape"], made["layout"]
    if layout == "turned" and len(shape) > 1:
        return within.view(shape[::-1]).permute(*reversed(range(len(shape))))
    if layout == "spread" and shape and shape[-1] > 1:
        return within.view(shape)[..., ::2]
    if layout == "one" and shape and shape[0] > 1:
        return within.view(shape)[:1].expand(shape)
    return within.view(shape)


def poisoned(byte: int) -> None:
    """From here on fresh memory of this process is full of this byte's complement, freed memory of this byte."""
    _MALLOPT(_PERTURB, byte)


def from_the_heap() -> None:
    """Large arrays too come from the heap, where poison is, and not fresh from the system."""
    _MALLOPT(_MMAP_THRESHOLD, 2**25)
    _MALLOPT(_TRIM_THRESHOLD, 2**28)


def from_the_system() -> None:
    """Blocks larger than a few pages come from the system, and go back to it at once."""
    _MALLOPT(_MMAP_THRESHOLD, 2**16)
    _MALLOPT(_TRIM_THRESHOLD, 2**16)


def _palette(fill: str, dtype: torch.dtype) -> Tensor:
    key = (fill, dtype)
    if key not in _PALETTES:
        _PALETTES[key] = _numbers(fill, dtype)
    return _PALETTES[key]


def _numbers(fill: str, dtype: torch.dtype) -> Tensor:
    places = torch.arange(_PALETTE)
    if fill == "zero":
        return torch.zeros(_PALETTE).to(dtype)
    if fill == "index":
        return (places * 7 % 3 % 2).to(dtype)
    if fill == "count":
        return (places * 7 % 3 + 1).to(dtype)
    if fill == "part":
        return ((places * 7 % 11 + 1) / 13).to(dtype)
    if fill == "crossed":  # the least number and its like beside minus one, where another tensor is `extreme`
        return _numbers("extreme", dtype).roll(-2)
    if fill == "small" or dtype == torch.bool:
        return (((places * 7) % 13 - 6) / 4).to(dtype)
    if dtype.is_floating_point:
        limits = torch.finfo(dtype)
        edges = [limits.max, limits.min, limits.tiny, 0.0, -0.0, 1.0, -1.0]
        edges += [math.inf, -math.inf, math.nan] if fill == "strange" else []
    else:
        least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        edges = (
            [least, most, -1 if least else 0, 1, 0] if fill == "strange" else [least, most, -1 if least else 1, 1, 2]
        )
    return torch.tensor([edges[int(place) % len(edges)] for place in places], dtype=dtype)


_PALETTES: dict[tuple[str, torch.dtype], Tensor] = {}
