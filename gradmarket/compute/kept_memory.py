"""What the C library does with memory that is given back."""

import ctypes
from contextlib import suppress
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Their numbers in glibc's malloc.h; see mallopt(3)."""
KEPT: Final = 2**26
"""Most bytes that the end of each heap keeps free."""
LARGEST: Final = 2**25
"""Bytes of the largest block that comes from a heap, and the most that glibc takes here."""


def keep_freed() -> None:
    """Has glibc keep for the next task what a task gives back: to get the pages anew takes longer than to pack an
    answer of some megabytes. Other C libraries do as they like."""
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, LARGEST)
        mallopt(_TRIM_THRESHOLD, KEPT)
