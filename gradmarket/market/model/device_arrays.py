"""Optimizers on a card: their own formulas (gradient.optimizers), on tensors that stay there.

Each operation is one kernel that rounds once, as numpy's does: sums, products, true quotients and square roots of IEEE
754, never a fused multiply-add, and no quotient by a reciprocal. So the bits are those of the processor's loops, but
for numbers below 2^-126, which a processor's child takes for 0.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from gradmarket.market.gradient.arrays import CHUNK
from gradmarket.market.gradient.norm import compute_clip_factor

SLAB: Final = 128 * CHUNK
"""Elements whose squares are added at once: 32 MiB of float64."""


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
    """Returns numpy's sign: of what is no number it is none, where torch has 0."""
    return torch.where(values.isnan(), values, values.sign())


_UFUNCS: Final[Mapping[np.ufunc, Callable[..., Tensor]]] = {
    np.add: torch.add,
    np.subtract: torch.sub,
    np.multiply: torch.mul,
    np.true_divide: _divide,
    np.sqrt: _take_root,
    np.sign: _take_sign,
}


def wrap_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Returns the tensors as an optimizer takes them."""
    return {name: DeviceArray(tensor) for name, tensor in tensors.items()}


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


def clip_on_device(gradient: Mapping[str, Any], limit: float) -> dict[str, Any]:
    """Returns the gradient as norm.clip_gradient does, by a norm of the same bits; waits for the device once."""
    scale = compute_clip_factor(compute_device_norm(gradient), limit)
    return dict(gradient) if scale is None else {name: array * scale for name, array in gradient.items()}


def compute_device_norm(gradient: Mapping[str, Any]) -> float:
    """Returns the L2 norm of all elements together, the bits of norm.compute_norm."""
    sums = [part for array in gradient.values() for part in _add_squares(array.tensor.reshape(-1))]
    return math.sqrt(math.fsum(torch.cat(sums).tolist())) if sums else 0.0


def _add_squares(flat: Tensor) -> Iterator[Tensor]:
    """Yields the sums of squares of each CHUNK of a flat tensor, added in halves: float64."""
    for start in range(0, flat.numel(), SLAB):
        part = flat[start : start + SLAB].to(torch.float64)
        squares = torch.nn.functional.pad(part, (0, -part.numel() % CHUNK)).view(-1, CHUNK)
        squares = squares * squares
        while squares.shape[1] > 1:
            half = squares.shape[1] // 2
            squares = squares[:, :half] + squares[:, half:]
        yield squares[:, 0]
