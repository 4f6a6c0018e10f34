"""Arrays in memory shared by parent and child: an unnamed file that both map and nobody can shrink.

Only the parent places arrays; bytes that the child writes there are read as plain numbers.
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

from graphdoc.encoding import Bytes

ALIGNMENT: Final = 64
Described = Mapping[str, tuple[tuple[int, ...], str]]
"""Maps each array's name to its shape and element type."""


@dataclass(frozen=True)
class Placement:
    """Where one array is in the arena."""

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


def encode_placements(placements: Placements) -> list[list[Any]]:
    """Returns the placements as JSON values."""
    return [[placement.name, placement.dtype, list(placement.shape), placement.offset] for placement in placements]


def decode_placements(value: list[list[Any]]) -> Placements:
    """Reverses `encode_placements`."""
    return tuple(Placement(name, dtype, tuple(shape), offset) for name, dtype, shape, offset in value)


def describe_arrays(arrays: Mapping[str, np.ndarray]) -> Described:
    """Returns the shape and element type of each array."""
    return {name: (array.shape, array.dtype.name) for name, array in arrays.items()}


def plan_placements(wanted: Described, start: int = 0) -> Placements:
    """Places these arrays one after another from `start`, each aligned."""
    placements = []
    for name, (shape, dtype) in wanted.items():
        placement = Placement(name, dtype, shape, -(-start // ALIGNMENT) * ALIGNMENT)
        placements.append(placement)
        start = placement.end
    return tuple(placements)


def end_of(placements: Placements, start: int = 0) -> int:
    """Returns the first byte after these placements."""
    return max((placement.end for placement in placements), default=start)


class AnswerMemory:
    """The memory for copies of an arena's arrays, which they share: `fill` makes the system provide it all at once.

    Getting memory takes as long as copying into it, and can happen while the arrays are computed.
    """

    def __init__(self, placements: Placements) -> None:
        self.start = min((placement.offset for placement in placements), default=0)
        self.memory = np.empty(end_of(placements, self.start) - self.start, np.uint8)

    def fill(self) -> None:
        self.memory[:: mmap.PAGESIZE] = 0


class Arena:
    """Shared memory behind a file descriptor. It grows and never shrinks."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.held: tuple[str, Placements] | None = None
        """The state that has stayed in it since the last request, by its caller's name for it."""
        self._map: mmap.mmap | None = None

    @classmethod
    def create(cls) -> "Arena":
        """Creates an empty arena; a seal keeps either side from shrinking it while the other has it mapped."""
        if not hasattr(os, "memfd_create"):
            with tempfile.TemporaryFile() as file:
                return cls(os.dup(file.fileno()))
        descriptor = os.memfd_create("graphdoc", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        return cls(descriptor)

    @property
    def size(self) -> int:
        """Returns the file's size in bytes; the other side may have grown it."""
        return os.fstat(self.descriptor).st_size

    def reserve(self, size: int) -> None:
        """Grows the file to at least this many bytes."""
        if self.size < size:
            os.ftruncate(self.descriptor, size)

    def write(self, placements: Placements, arrays: Mapping[str, np.ndarray]) -> None:
        """Copies each array to its placement."""
        for placement in placements:
            self._map_placement(placement)[...] = arrays[placement.name]

    def read(self, placements: Placements, memory: "AnswerMemory | None" = None) -> dict[str, np.ndarray]:
        """Returns copies of the arrays at these placements, which follow one another; see AnswerMemory."""
        copied = memory or AnswerMemory(placements)
        start = copied.start
        copied.memory[:] = self._map_placement(Placement("", "uint8", copied.memory.shape, start))
        return {
            one.name: copied.memory[one.offset - start : one.end - start].view(one.dtype).reshape(one.shape)
            for one in placements
        }

    def views(self, placements: Placements) -> dict[str, np.ndarray]:
        """Returns the arrays without copying; they are valid until the arena grows."""
        return {placement.name: self._map_placement(placement) for placement in placements}

    def write_bytes(self, parts: Sequence[Bytes]) -> None:
        """Writes the parts one after another from the start, growing the file as needed."""
        self.reserve(sum(len(part) for part in parts))
        start = 0
        for part in parts:
            self._map_placement(Placement("", "uint8", (len(part),), start))[...] = np.frombuffer(part, dtype=np.uint8)
            start += len(part)

    def read_bytes(self, lengths: Sequence[int]) -> list[bytes]:
        """Returns copies of consecutive parts with these lengths, from the start."""
        pairs = zip(lengths, itertools.accumulate(lengths, initial=0), strict=False)
        return [self._map_placement(Placement("", "uint8", (length,), start)).tobytes() for length, start in pairs]

    def close(self) -> None:
        self._map = None
        os.close(self.descriptor)

    def _map_placement(self, placement: Placement) -> np.ndarray:
        if self._map is None or len(self._map) < placement.end:
            self._renew_map()
        flat = np.frombuffer(self._map or b"", dtype=placement.dtype, count=placement.count, offset=placement.offset)
        return flat.reshape(placement.shape)

    def _renew_map(self) -> None:
        self._map = mmap.mmap(self.descriptor, max(self.size, 1))
