"""Wall and CPU time of the ten-holder example with and without secure aggregation, one after the other on this machine.

Counted as wall time is from the end of the first round to the end of the last. CPU time is that of the service, the ten
workers and their confined children from their start on, which is the same for both; the chain's node is not in it.
"""

import os
import resource
from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from benchmarks.figure import Figure
from benchmarks.private import ROUNDS
from benchmarks.private_wall import ours
from benchmarks.size import sized

PREFIX = "private.wall_sums."
SECURE = "--secure"


def _run(*options: str) -> tuple[list[float], float]:
    """Returns when each round closed, and the CPU seconds of the processes that it took."""
    before = _cpu_s()
    ends = ours(*options)
    return ends, _cpu_s() - before


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure() -> Iterator[Figure]:
    plain, plain_cpu = _run(*sized((), (SECURE,)))  # private.wall plays the smallest one without
    secure, secure_cpu = (plain, plain_cpu) if sized(False, True) else _run(SECURE)
    own, other = secure[-1] - secure[0], plain[-1] - plain[0]
    rounds = median(after - before for before, after in pairwise(secure))
    note = f"{ROUNDS - 1} rounds of ten holders on {os.cpu_count()} cores; median round {rounds:.2f} s"
    yield Figure(f"{PREFIX}s", own, "s", "without secure aggregation", own / other, note=note)
    yield Figure(f"{PREFIX}plain_s", other, "s", note="in the same run, right before")
    ratio = secure_cpu / plain_cpu
    yield Figure(f"{PREFIX}cpu_s", secure_cpu, "s", "without secure aggregation", ratio, note="starts included")
    yield Figure(f"{PREFIX}plain_cpu_s", plain_cpu, "s", note="in the same run, right before")
