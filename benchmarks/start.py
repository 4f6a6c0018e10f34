"""CPU of a start: the service's until it answers, and a worker's until its first poll waits for work."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import httpx
import psutil

from benchmarks.figure import Figure
from benchmarks.rig.cpu import children_cpu_s, own_cpu_s
from benchmarks.rig.patience import PATIENCE_S
from benchmarks.rig.service import SETTINGS, serving
from benchmarks.size import sized

PREFIX = "start."
RUNS: Final = sized(5, 1)
WAITING: Final = "gradmarket_long_polls_open 1.0"
"""A line of the service's metrics."""


def measure() -> Iterator[Figure]:
    first, again, workers = [], [], []
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "data"
            with serving(["gradmarket"], data, {**os.environ, **SETTINGS}) as process:
                first.append(_spent(psutil.Process(process.pid)))
            with serving(["gradmarket"], data, {**os.environ, **SETTINGS}) as process:
                again.append(_spent(psutil.Process(process.pid)))
                workers.append(_worker((data / "url").read_text().strip(), Path(folder)))
    yield _figure("service", first, "until it answers, on a new folder", "<= 1.4")
    yield _figure("service_again", again, "until it answers, on a folder that has its database", "<= 1.4")
    yield _figure("worker", workers, "until its first poll waits", "<= 1.0")


def _worker(url: str, folder: Path) -> tuple[float, float]:
    command = [sys.executable, "-m", "gradmarket", "worker", "run", "--market", url, "--plain-key"]
    log = folder / "worker.log"
    with log.open("wb") as out:
        process = subprocess.Popen([*command, "--data", str(folder / "worker")], stdout=out, stderr=out)
    try:
        until = time.monotonic() + PATIENCE_S
        while WAITING not in httpx.get(f"{url}/metrics", timeout=PATIENCE_S).text:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"no worker polls: {log.read_text()[-500:]}")
            time.sleep(0.02)
        return _spent(psutil.Process(process.pid))
    finally:
        process.kill()
        process.wait()


def _spent(process: psutil.Process) -> tuple[float, float]:
    """Returns CPU seconds so far: of the process, and of those that it started and that still run."""
    return own_cpu_s(process), children_cpu_s(process)


def _figure(name: str, spent: Sequence[tuple[float, float]], subject: str, target: str) -> Figure:
    own, others = ([one[place] for one in spent] for place in (0, 1))
    note = f"{min(own):.2f} to {max(own):.2f} over {len(own)}, {subject}; what it started {median(others):.2f}"
    return Figure(f"start.{name}_cpu_s", median(own), "s", target=target, note=note)
