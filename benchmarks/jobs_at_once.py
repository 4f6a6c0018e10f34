"""Time of four jobs at once over one after the other, on a served market."""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median
from typing import Final

import httpx

from benchmarks.figure import Figure
from benchmarks.rig.patience import PATIENCE_S
from benchmarks.rig.service import Service, service
from benchmarks.size import sized

PREFIX = "jobs_at_once."
JOBS: Final = sized(4, 2)
ROUNDS: Final = sized(15, 1)
RUNS: Final = sized(5, 1)
WORKERS: Final = sized(3, 1)
"""As many as decide about a task."""
VOTES: Final = {"name": "fixed", "replicas": WORKERS, "max_replicas": WORKERS}


def measure() -> Iterator[Figure]:
    with service(shared=False) as here, _workers(here):
        _finish_jobs(here, 1, 1)  # every worker is warm
        pairs = [(_finish_jobs(here, JOBS, 1), _finish_jobs(here, JOBS, JOBS)) for _ in range(RUNS)]
    ratios = [at_once / one_by_one for one_by_one, at_once in pairs]
    one_by_one, at_once = (median(seconds) for seconds in zip(*pairs, strict=True))
    jobs = f"{JOBS} jobs of {ROUNDS} rounds, {WORKERS} workers: {at_once:.1f} s, one after the other {one_by_one:.1f} s"
    note = f"{min(ratios):.2f} to {max(ratios):.2f} over {RUNS}; {jobs}"
    yield Figure("jobs_at_once.ratio", median(ratios), "x", target="<= 1.1", note=note)


def _finish_jobs(here: Service, jobs: int, at_once: int) -> float:
    """Returns the seconds from the first posting until all `jobs` have finished.

    The waiting thread asks for one job at a time, however many run, so its own requests do not count.
    """
    began = time.perf_counter()
    with httpx.Client(headers=here.headers, timeout=PATIENCE_S) as client, ThreadPoolExecutor(at_once) as threads:
        for first in range(0, jobs, at_once):
            for job in threads.map(lambda number: _post_job(here, number), range(first, first + at_once)):
                _await_end(client, f"{here.url}/v1/jobs/{job}")
    return time.perf_counter() - began


def _post_job(here: Service, number: int) -> str:
    """Posts a job with a model of its own."""
    model = {"architecture": "mlp", "arguments": {"hidden": [sized(64, 8) + number]}}
    return here.post(model=model, rounds=ROUNDS, replication=VOTES)


def _await_end(client: httpx.Client, address: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while (shown := client.get(address).json())["state"] != "finished":
        if time.monotonic() > until or shown["state"] != "running":
            raise RuntimeError(str(shown))
        time.sleep(0.05)


@contextmanager
def _workers(here: Service) -> Iterator[None]:
    command = [
        sys.executable,
        "-m",
        "gradmarket",
        "worker",
        "run",
        "--market",
        here.url,
        "--plain-key",
        "--threads",
        "1",
    ]
    processes = []
    try:
        for number in range(WORKERS):
            with (here.folder / f"worker-{number}.log").open("wb") as log:
                folder = str(here.folder / f"worker-{number}")
                processes.append(subprocess.Popen([*command, "--data", folder], stdout=log, stderr=log))
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
