"""Arrays in memory that parent and child share: a file without a name, mapped by both, that nobody can shrink.

Only the parent says where an array lies; what the child writes there is read as plain numbers.
"""

import fcntl
import itertools
import math
import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

ALIGNMENT: Final = 64
Described = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape and element type of each array by its name."""


@dataclass(frozen=True)
class Placement:
    """Where one array lies."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def end(self) -> int:
        return self.offset + self.count * np.dtype(self.dtype).itemsize


Placements = tuple[Placement, ...]


def encoded(placements: Placements) -> list[list[Any]]:
    """As JSON."""
    return [[place.name, place.dtype, list(place.shape), place.offset] for place in placements]


def decoded(value: list[list[Any]]) -> Placements:
    """The inverse of `encoded`."""
    return tuple(Placement(name, dtype, tuple(shape), offset) for name, dtype, shape, offset in value)


def described(arrays: Mapping[str, np.ndarray]) -> Described:
    """Shape and element type of each array."""
    return {name: (array.shape, array.dtype.name) for name, array in arrays.items()}


def planned(wanted: Described, start: int = 0) -> Placements:
    """Places for these arrays one after another from `start`, each aligned."""
    placements = []
    for name, (shape, dtype) in wanted.items():
        placement = Placement(name, dtype, shape, -(-start // ALIGNMENT) * ALIGNMENT)
        placements.append(placement)
        start = placement.end
    return tuple(placements)


def end_of(placements: Placements, start: int = 0) -> int:
    """The first byte after these places."""
    return max((placement.end for placement in placements), default=start)


class Arena:
    """The shared memory behind a file descriptor. Grows, never shrinks."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._map: mmap.mmap | None = None

    @classmethod
    def create(cls) -> "Arena":
        """A new, empty one, which whoever maps it cannot shrink under the other's feet."""
        if not hasattr(os, "memfd_create"):
            with tempfile.TemporaryFile() as file:
                return cls(os.dup(file.fileno()))
        descriptor = os.memfd_create("gradmarket", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        return cls(descriptor)

    @property
    def size(self) -> int:
        """Bytes of the file, which the other side may have grown."""
        return os.fstat(self.descriptor).st_size

    def reserve(self, size: int) -> None:
        """Makes room for this many bytes."""
        if self.size < size:
            os.ftruncate(self.descriptor, size)

    def write(self, placements: Placements, arrays: Mapping[str, np.ndarray]) -> None:
        """Copies each array to its place."""
        for placement in placements:
            self._view(placement)[...] = arrays[placement.name]

    def read(self, placements: Placements) -> dict[str, np.ndarray]:
        """Copies of the arrays in these places."""
        return {placement.name: self._view(placement).copy() for placement in placements}

    def views(self, placements: Placements) -> dict[str, np.ndarray]:
        """The arrays in place: valid until the arena grows."""
        return {placement.name: self._view(placement) for placement in placements}

    def write_bytes(self, parts: Sequence[bytes]) -> None:
        """Writes these one after another from the start, with room made for them."""
        self.reserve(sum(len(part) for part in parts))
        start = 0
        for part in parts:
            self._view(Placement("", "uint8", (len(part),), start))[...] = np.frombuffer(part, dtype=np.uint8)
            start += len(part)

    def read_bytes(self, lengths: Sequence[int]) -> list[bytes]:
        """Copies of the parts with these lengths, one after another from the start."""
        pairs = zip(lengths, itertools.accumulate(lengths, initial=0), strict=False)
        return [self._view(Placement("", "uint8", (length,), start)).tobytes() for length, start in pairs]

    def close(self) -> None:
        self._map = None
        os.close(self.descriptor)

    def _view(self, placement: Placement) -> np.ndarray:
        if self._map is None or len(self._map) < placement.end:
            self._map = mmap.mmap(self.descriptor, max(self.size, 1))
        flat = np.frombuffer(self._map, dtype=placement.dtype, count=placement.count, offset=placement.offset)
        return flat.reshape(placement.shape)
