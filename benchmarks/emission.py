"""Publishing a module: CPU, peak memory, and for loops CPU a traced node.

A loop of four times as many places must cost four times as much: growth is CPU a node at 4n over CPU a node at n. torch
traces every node of a loop; its document has one for all of them. Each model is published in a process of its own, with
the threads that torch takes; torch's tracing was loaded before. A thread that waits for another sleeps, so the CPU time
is that of computing, however busy the machine is.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.figure import Figure
from benchmarks.size import sized

PREFIX = "emission."
TOKENS: Final = 66
SHORT: Final = sized(68, 4)
LOOPS: Final = sized(("scan", "cells"), ("scan",))
WHOLE: Final = sized((("gpt2", TOKENS, "<= 20"), ("gru", 1024, "<= 20"), ("scan", 1024, "")), (("gru", 8, ""),))
"""Model, places, and the limit of its CPU seconds; a loop of `scan` has eleven nodes a place."""


def measure() -> Iterator[Figure]:
    for name, places, seconds in WHOLE:
        yield from _whole(name, places, seconds)
    for name in LOOPS:
        yield from _growth(name)


def _published(name: str, places: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.rig.emitted", name, str(places)]
    waiting = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=waiting)
    return dict(json.loads(done.stdout))


def _whole(name: str, places: int, seconds: str) -> Iterator[Figure]:
    found = _published(name, places)
    load = os.getloadavg()[0]
    nodes = f"{found['nodes']} nodes for {found['calls']} traced"
    note = f"{nodes}, {places} places; in {found['seconds']:.1f} s, the machine's load was {load:.1f}"
    yield Figure(f"emission.{name}.{places}.cpu_s", found["cpu"], "s", target=seconds, note=note)
    yield Figure(f"emission.{name}.{places}.gib", found["gib"], "GiB", target="<= 2.5", note="of the whole process")


def _growth(name: str) -> Iterator[Figure]:
    short, long = _published(name, SHORT), _published(name, 4 * SHORT)
    one, four = (1000 * found["cpu"] / found["calls"] for found in (short, long))
    note = f"{one:.2f} ms of CPU a node at {short['calls']} nodes, {four:.2f} at {long['calls']}"
    yield Figure(f"emission.{name}.ms_a_node", four, "ms", f"{short['calls']} nodes", four / one, note=note)
    yield Figure(f"emission.{name}.growth", four / one, "times", target="<= 1.25", note=note)
