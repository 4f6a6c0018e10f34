"""Memory that the products of one pass share: fresh pages cost a product a fifth of its time."""

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


class _Kept(threading.local):
    """The scratch memory of this thread by place; None where nobody holds any."""

    places: dict[int, Tensor] | None = None


_KEPT = _Kept()


@contextmanager
def hold_scratch() -> Iterator[None]:
    """Keeps what is taken for what takes the same place next, until the end."""
    before, _KEPT.places = _KEPT.places, {}
    try:
        yield
    finally:
        _KEPT.places = before


def take(place: int, shape: Sequence[int], beside: Tensor) -> Tensor:
    """Returns a float64 tensor of any values on the device of `beside`; fresh where no scratch is held.

    Who takes the same place next overwrites it.
    """
    if _KEPT.places is None:
        return torch.empty(shape, dtype=torch.float64, device=beside.device)
    count, kept = math.prod(shape), _KEPT.places.pop(place, None)
    if kept is None or kept.numel() < count or kept.device != beside.device:
        kept = None  # given back before the larger one is taken
        kept = torch.empty(count, dtype=torch.float64, device=beside.device)
    _KEPT.places[place] = kept
    return kept[:count].view(tuple(shape))
