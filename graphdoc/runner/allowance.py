"""Limits on one request's address space and processor time, derived from the bound of its computation."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SLOWEST: Final = 1e7
"""Floating-point operations per second of the slowest kernels on a slow machine (adding elements one by one)."""
CALL_S: Final = 0.01
"""Seconds for each call of a node, for any computation."""
FIRST_S: Final = 30.0
"""Seconds for each request, for any content."""
BOUND_S: Final = 20.0
"""Seconds of processor time in which a document's cost must be computed."""
SPARE: Final = 256 * 2**20
"""Bytes of address space beyond the bound: libraries reserve more than they use."""
SPARE_A_THREAD: Final = 128 * 2**20
"""The same for each further thread: its stack and its own heap."""
OVERDRAWN: Final = -signal.SIGXCPU
"""The return code of a child that exceeded its processor time."""


READ_AGAIN: Final = 0.5
"""The measured share of library pages read by an import that computing reads too: a forked child has them then."""


def idle_bytes(warm: int = 0) -> int:
    """Returns the resident memory of this process; 0 if the system does not report it.

    `warm`: `file_bytes` of the process that forked it; those pages that it will read are in the answer.
    """
    return _read_statm_bytes(1) + int(READ_AGAIN * max(0, warm - file_bytes()))


def file_bytes() -> int:
    """Returns the bytes of that memory that are pages of files, which a fork omits."""
    return _read_statm_bytes(2)


def _read_statm_bytes(field: int) -> int:
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[field]) * resource.getpagesize() if statm.exists() else 0


def compute_allowed_seconds(operations: int, calls: int, passes: int, threads: int) -> float:
    """Returns the seconds of processor time that a task may take."""
    return threads * (FIRST_S + operations / SLOWEST + calls * passes * CALL_S)


@contextmanager
def limit_request(seconds: float, memory: int | None = None, threads: int = 1) -> Iterator[None]:
    """Limits processor time (exceeding it kills this process) and further memory (allocations beyond it fail).

    Both are soft limits below those of confine.py and are restored afterwards.
    """
    before = {which: resource.getrlimit(which) for which in (resource.RLIMIT_CPU, resource.RLIMIT_AS)}
    used = resource.getrusage(resource.RUSAGE_SELF)
    _lower_limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime + seconds) + 1)
    if memory is not None:
        _lower_limit(resource.RLIMIT_AS, _read_statm_bytes(0) + memory + SPARE + (threads - 1) * SPARE_A_THREAD)
    try:
        yield
    finally:
        for which, limits in before.items():
            resource.setrlimit(which, limits)


def _lower_limit(which: int, value: int) -> None:
    soft, hard = resource.getrlimit(which)
    if soft == resource.RLIM_INFINITY or value < soft:
        resource.setrlimit(which, (value, hard))
