"""Optimizers on a card: their own formulas (gradient.optimizers), on tensors that stay there.

Each operation is one kernel that rounds once, as numpy's does: sums, products, true quotients and square roots of IEEE
754, never a fused multiply-add, and no quotient by a reciprocal. So the bits are those of the processor's loops, but
for numbers below 2^-126, which a processor's child takes for 0.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import CHUNK
from gradmarket.market.gradient.norm import compute_clip_factor
from gradmarket.market.gradient.optimizers import OptimizerRule

SLAB: Final = 512 * CHUNK
"""Elements whose squares are added at once: 128 MiB of float64."""
JOINED: Final = 1024 * CHUNK
"""Elements of a tensor that joins parameters, but for a parameter that is larger: 128 MiB."""


class DeviceArray:
    """A float32 tensor with the part of numpy's interface that elementwise optimizers use."""

    dtype: Final = np.dtype(np.float32)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Any:
        compute = _UFUNCS.get(ufunc)
        if compute is None or method != "__call__" or named:
            return NotImplemented
        return DeviceArray(compute(*map(_unwrap, inputs)))

    def __add__(self, other: Any) -> "DeviceArray":
        return DeviceArray(torch.add(self.tensor, _unwrap(other)))

    def __sub__(self, other: Any) -> "DeviceArray":
        return DeviceArray(torch.sub(self.tensor, _unwrap(other)))

    def __mul__(self, other: Any) -> "DeviceArray":
        return DeviceArray(torch.mul(self.tensor, _unwrap(other)))

    def __truediv__(self, other: Any) -> "DeviceArray":
        return DeviceArray(_divide(self.tensor, _unwrap(other)))


def _unwrap(value: Any) -> Any:
    """Returns a tensor, or a number that is exactly the float32 it was."""
    return value.tensor if isinstance(value, DeviceArray) else float(np.float32(value))


def _divide(one: Tensor, other: Tensor | float) -> Tensor:
    """Returns the quotient; by a number on a card torch would multiply with its reciprocal, which rounds twice."""
    return torch.div(one, other if isinstance(other, Tensor) else one.new_full((), other))


def _take_root(values: Tensor) -> Tensor:
    """Returns the root, rounded once; a processor's vectors round it twice, but for that of float64."""
    return values.sqrt() if values.is_cuda else values.double().sqrt().float()


def _take_sign(values: Tensor) -> Tensor:
    """Returns numpy's sign: that of NaN is NaN, where torch has 0."""
    return torch.where(values.isnan(), values, values.sign())


_UFUNCS: Final[Mapping[np.ufunc, Callable[..., Tensor]]] = {
    np.add: torch.add,
    np.subtract: torch.sub,
    np.multiply: torch.mul,
    np.true_divide: _divide,
    np.sqrt: _take_root,
    np.sign: _take_sign,
}


def upload_arrays(arrays: Mapping[str, np.ndarray], device: str) -> dict[str, Any]:
    """Returns float32 arrays on the device, as an optimizer takes them; others, such as a number of steps, as here."""
    return {
        name: DeviceArray(torch.tensor(array, device=device)) if array.dtype == np.float32 else array
        for name, array in arrays.items()
    }


def download_arrays(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The inverse of `upload_arrays`."""
    return {
        name: array.tensor.cpu().numpy() if isinstance(array, DeviceArray) else array for name, array in arrays.items()
    }


@dataclass(frozen=True)
class _Place:
    name: str
    shape: tuple[int, ...]
    start: int
    size: int


class JoinedParameters:
    """Parameters of one weight decay, one after another in a few flat tensors: a step is a few kernels, not hundreds.

    Elementwise optimizers change a part of a tensor as they change it in the whole, so each joined one changes as it
    does alone. Each begins at a multiple of CHUNK, as the norm wants it and as torch's own memory is aligned, with
    zeros between. A flat tensor goes by the name of its first parameter, whose decay is that of all.
    """

    def __init__(self, parameters: Mapping[str, Tensor], rule: OptimizerRule, settings: Any) -> None:
        self._rule, self._settings = rule, settings
        self._joined: dict[str, list[_Place]] = {}
        open_ones: dict[str, str] = {}  # by repr: -0.0 is another decay than 0.0
        ends: dict[str, int] = {}
        for name, tensor in parameters.items():
            decay, room = repr(settings.choose_weight_decay(name)), tensor.numel() + -tensor.numel() % CHUNK
            key = open_ones.get(decay)
            if key is None or ends[key] + room > JOINED:
                key = open_ones[decay] = name
            place = _Place(name, tuple(tensor.shape), ends.get(key, 0), tensor.numel())
            self._joined.setdefault(key, []).append(place)
            ends[key] = place.start + room

    def join(self, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Returns one float32 tensor for each parameter as an optimizer takes them: flat, by the first one's name.

        Raises PayloadRefused for a shape.
        """
        joined: dict[str, Any] = {}
        for key, places in self._joined.items():
            parts: list[Tensor] = []
            for place in places:
                tensor = tensors[place.name]
                if tuple(tensor.shape) != place.shape:
                    raise PayloadRefused(
                        f"{place.name} has the shape {tuple(tensor.shape)}, and its parameter {place.shape}"
                    )
                parts += [tensor.reshape(-1), tensor.new_zeros(-tensor.numel() % CHUNK)]
            joined[key] = DeviceArray(torch.cat(parts))
        return joined

    def cut(self, joined: Mapping[str, Any]) -> dict[str, Tensor]:
        """The inverse of `join`, as views."""
        return {
            place.name: joined[key].tensor[place.start : place.start + place.size].view(place.shape)
            for key, places in self._joined.items()
            for place in places
        }

    def start_memory(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the optimizer's memory before the first step, made there: all elements of an array start equal."""
        small = self._rule.start({key: np.zeros(1, np.float32) for key in self._joined}, self._settings)
        return {
            key: DeviceArray(torch.full_like(parameters[owner].tensor, float(array[0]))) if owner else array
            for key, array in small.items()
            for owner in [key.partition("/")[2]]
        }

    def join_memory(self, memory: Mapping[str, np.ndarray], device: str) -> dict[str, Any]:
        """Returns a memory of the parameters' own arrays, `<key>/<parameter>`, as that of the flat ones, there."""
        kinds = dict.fromkeys(key.partition("/")[0] for key in memory if "/" in key)
        joined: dict[str, Any] = {key: array for key, array in memory.items() if "/" not in key}
        for kind in kinds:
            own = {name: memory[f"{kind}/{name}"] for name in self._list_names()}
            there = self.join({name: torch.tensor(array, device=device) for name, array in own.items()})
            joined |= {f"{kind}/{key}": array for key, array in there.items()}
        return joined

    def cut_memory(self, memory: Mapping[str, Any]) -> dict[str, Any]:
        """The inverse of `join_memory`, as views there."""
        kinds = dict.fromkeys(key.partition("/")[0] for key in memory if "/" in key)
        found: dict[str, Any] = {key: array for key, array in memory.items() if "/" not in key}
        for kind in kinds:
            own = self.cut({key: memory[f"{kind}/{key}"] for key in self._joined})
            found |= {f"{kind}/{name}": DeviceArray(tensor) for name, tensor in own.items()}
        return found

    def _list_names(self) -> list[str]:
        return [place.name for places in self._joined.values() for place in places]


def clip_on_device(gradient: Mapping[str, Any], limit: float) -> dict[str, Any]:
    """Returns the gradient as norm.clip_gradient does, by a norm of the same bits; waits for the device once."""
    scale = compute_clip_factor(compute_device_norm(gradient), limit)
    return dict(gradient) if scale is None else {name: array * scale for name, array in gradient.items()}


def compute_device_norm(gradient: Mapping[str, Any]) -> float:
    """Returns the L2 norm of all elements together, the bits of norm.compute_norm."""
    sums = []
    for array in gradient.values():
        flat = array.tensor.reshape(-1)
        for start in range(0, flat.numel(), SLAB):
            part = flat[start : start + SLAB].to(torch.float64)
            squares = torch.nn.functional.pad(part, (0, -part.numel() % CHUNK)).view(-1, CHUNK)
            squares.mul_(squares)
            while squares.shape[1] > 1:  # each CHUNK is added in halves
                half = squares.shape[1] // 2
                squares = squares[:, :half] + squares[:, half:]
            sums.append(squares[:, 0])
    return math.sqrt(math.fsum(torch.cat(sums).tolist())) if sums else 0.0
