"""The models and optimizer states that this process keeps between two merges of a job, never the only copy."""

import mmap
import os
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.terms import Digest
from graphdoc import tensors
from graphdoc.encoding import Bytes

BLOCK: Final = 2**23
"""Bytes of an image that are copied or read at a time: the disk writes one while the next is hashed."""


class Image:
    """A file of named arrays in memory, whose arrays are views of its bytes; a large one is a mapped, unnamed file.

    The bytes of a mapped one are resident only while they are in use, if `release` is called afterwards.
    """

    def __init__(self, length: int, folder: Path | None) -> None:
        """Raises OSError where the folder's disk is full; a page of a sparse file would end the process instead."""
        self._map: mmap.mmap | None = None
        if folder is None or length == 0:
            self.data = np.empty(length, np.uint8).data
        else:
            with tempfile.TemporaryFile(dir=folder) as file:
                os.posix_fallocate(file.fileno(), 0, length)
                self._map = mmap.mmap(file.fileno(), length)
            self.data = memoryview(self._map)
        self.arrays: Arrays = {}

    @classmethod
    def of(cls, data: Bytes, folder: Path | None) -> "Image":
        """Copies a file's bytes. Raises TensorsRefused for a malformed file, OSError where the disk is full."""
        with memoryview(data).cast("B") as view:  # a mapped file can be closed after an error only if no view is left
            image = cls(len(view), folder)
            for start in range(0, len(view), BLOCK):
                image.data[start : start + BLOCK] = view[start : start + BLOCK]
                image.release()
        image.arrays = tensors.view_tensors(image.data)
        return image

    @property
    def length(self) -> int:
        return len(self.data)

    @property
    def mapped(self) -> bool:
        return self._map is not None

    def iterate_blocks(self) -> Iterator[memoryview]:
        """Yields the bytes in order."""
        for start in range(0, len(self.data), BLOCK):
            yield self.data[start : start + BLOCK]
            self.release()

    def release(self) -> None:
        """Releases a mapped image's pages to the kernel; their content stays in its file."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)


@dataclass(frozen=True)
class Version:
    """The position of a job: its next round, the digest of its parameters, and the time its last round was closed."""

    round: int
    parameters: Digest
    closed_at: float | None


@dataclass
class LiveState:
    """A job's model and optimizer state before a round, and room for the parameters after it."""

    version: Version
    parameters: Image
    spare: Image
    memory: Image
    snapshot: int = -1
    """The newest round whose optimizer state is stored; -1: that before the first."""
    snapshot_at: float = field(default_factory=time.monotonic)
    folder: Path | None = None
    """The folder from which its images are mapped; None: they are in memory."""
    update: Image = field(default_factory=lambda: Image(0, None))
    """The update that the last merge published, in a job with a downlink."""

    @property
    def length(self) -> int:
        return sum(image.length for image in self._images)

    @property
    def _images(self) -> tuple[Image, ...]:
        return self.parameters, self.spare, self.memory, self.update

    @property
    def mapped(self) -> bool:
        return self.memory.mapped or self.parameters.mapped

    def swap_images(self) -> None:
        """Makes the spare image, which holds the next parameters, the current one."""
        self.parameters, self.spare = self.spare, self.parameters

    def release(self) -> None:
        for image in self._images:
            image.release()

    def make_update_room(self, length: int) -> memoryview:
        """Returns a buffer for an update of `length` bytes."""
        if self.update.length != length:
            self.update = Image(length, self.folder)
        return self.update.data


class LiveStates:
    """The states used last, by job; a taken state belongs to its taker until it is kept again."""

    def __init__(self) -> None:
        self._states: OrderedDict[str, LiveState] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, job_id: str) -> LiveState | None:
        with self._lock:
            return self._states.pop(job_id, None)

    def jobs(self) -> list[str]:
        with self._lock:
            return list(self._states)

    def make_room(self, length: int, limit: int) -> None:
        """Drops the least recently used states until another of `length` bytes fits beside the rest."""
        with self._lock:
            while self._states and length + sum(one.length for one in self._states.values()) > limit:
                self._states.popitem(last=False)

    def store_state(self, job_id: str, state: LiveState, limit: int) -> None:
        """Keeps this state, and others as long as all of them take at most `limit` bytes."""
        with self._lock:
            self._states[job_id] = state
            while len(self._states) > 1 and sum(one.length for one in self._states.values()) > limit:
                self._states.popitem(last=False)


def load_live_state(
    model: Bytes, memory: Bytes, version: Version, snapshot: int, limit: int, folder: Path
) -> LiveState:
    """Copies a state from files of arrays. One of more than `limit` bytes is mapped from unnamed files in `folder`."""
    place = folder if 2 * len(model) + len(memory) > limit else None
    images = (Image.of(model, place), Image.of(model, place), Image.of(memory, place))
    return LiveState(version, *images, snapshot, folder=place)
