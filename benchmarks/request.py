"""CPU of a request that does nothing, beside FastAPI on uvicorn alone."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlsplit

import psutil

from benchmarks.figure import Figure
from benchmarks.rig.bare import PATH
from benchmarks.rig.cpu import own_cpu_s
from benchmarks.rig.patience import PATIENCE_S
from benchmarks.rig.service import service
from benchmarks.size import sized

PREFIX = "request."
ASKED: Final = sized(2_000, 400)  # the kernel counts in ticks of 10 ms: fewer may be none
TURNS: Final = sized(5, 1)


def measure() -> Iterator[Figure]:
    with service(shared=False) as here, _bare() as (bare, url):
        ours, theirs = [], []
        for _ in range(TURNS):
            ours.append(_cpu_ms(here.process, here.url))
            theirs.append(_cpu_ms(bare, url))
    note = f"GET {PATH} on one connection, {ASKED} times; the median of {TURNS} turns"
    alone = median(theirs)
    yield Figure("request.nothing_ms", median(ours), "ms", "bare FastAPI", median(ours) / alone, "<= 0.4", note)


@contextmanager
def _bare() -> Iterator[tuple[psutil.Process, str]]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "url"
        child = subprocess.Popen([sys.executable, "-m", "benchmarks.rig.bare", str(file)])
        try:
            until = time.monotonic() + PATIENCE_S
            while not file.exists() and time.monotonic() < until:
                time.sleep(0.05)
            yield psutil.Process(child.pid), file.read_text()
        finally:
            child.terminate()
            child.wait()


def _cpu_ms(process: psutil.Process, url: str) -> float:
    """CPU of one request, including the process's own work meanwhile."""
    place = urlsplit(url)
    connection = HTTPConnection(str(place.hostname), place.port, timeout=PATIENCE_S)
    before = own_cpu_s(process)
    for _ in range(ASKED):
        connection.request("GET", PATH)
        connection.getresponse().read()
    connection.close()
    return 1000 * (own_cpu_s(process) - before) / ASKED
