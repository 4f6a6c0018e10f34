"""A machine's limits, the cost of one task on it, and the freed memory that the C library retains."""

import ctypes
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final

OVERHEAD_S: Final = Fraction(1, 20)
"""Seconds of a task besides its step: polls, sealing, the upload."""


class Unfit(StrEnum):
    """Reasons why a machine does not run a task, each with the attack that it stops."""

    TOO_MANY_FLOPS = "the step needs more operations than were allowed"
    """A small document that computes for a day."""
    TOO_MUCH_MEMORY = "the step needs more memory than was allowed"
    """A small document that takes the machine down."""
    NOT_ON_CUDA = "the step has no one answer on a card, and votes are exact"
    """Work whose honest answers differ between machines and are outvoted."""
    TOO_MANY_BYTES = "parameters and a partition are more bytes than were allowed"
    """A link to a disk full of zeros."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLimits:
    """The most that one task may take: operations, bytes of memory, bytes of downloads."""

    max_flops: float
    max_memory: int
    max_disk: int = 2**40
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Effort:
    """The cost of one task: its operations by the document's bound, and the seconds of its step on this machine."""

    flops: int
    seconds: float

    @property
    def whole(self) -> Fraction:
        return Fraction(self.seconds) + OVERHEAD_S


def too_heavy(flops: float, memory: int, limits: MachineLimits) -> Unfit | None:
    """Checks a step's upper bounds: `flops` operations and `memory` bytes."""
    if flops > limits.max_flops:
        return Unfit.TOO_MANY_FLOPS
    return Unfit.TOO_MUCH_MEMORY if memory > limits.max_memory else None


def find_device_unfit(only_on_cpu: str, limits: MachineLimits) -> Unfit | None:
    """Declines a step that has no deterministic CUDA kernel (`only_on_cpu` names it): verifiers compare exact bits."""
    return Unfit.NOT_ON_CUDA if only_on_cpu and limits.device != "cpu" else None


_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Their numbers in glibc's malloc.h; see mallopt(3)."""
KEPT: Final = 2**26
"""Most bytes that the end of each heap keeps free."""
LARGEST: Final = 2**25
"""Bytes of the largest block that comes from a heap, and the most that glibc takes here."""


def retain_freed_memory() -> None:
    """Makes glibc retain freed memory for the next task: fetching the pages anew takes longer than packing an answer of
    some megabytes. Has no effect with other C libraries.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, LARGEST)
        mallopt(_TRIM_THRESHOLD, KEPT)
