"""Time of others' job beside each kind of stranger, over its time undisturbed.

The stranger has an address of its own (127.0.0.2), with the limits that every address has by default.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.figure import Figure
from benchmarks.rig.service import Service, service
from benchmarks.rig.wallets import sign_in_wallets
from benchmarks.rig.workers import Worker, work
from benchmarks.size import sized

PREFIX = "strangers."
LIMITED: Final = {"GRADMARKET_UNLIMITED": '["127.0.0.1/32"]'}
REPLICAS: Final = sized(60, 3)
WORKERS: Final = sized(6, 3)
RUNS: Final = sized(3, 1)
ACCOUNTS: Final = sized(400, 10)
WALLETS: Final = 8
BEGUN_S: Final = sized(2.0, 0.2)
"""Until the stranger is at it."""
KINDS: Final = ("ledger", "nonce", "letters", "streams", "polls", "asks")


def measure() -> Iterator[Figure]:
    with service(shared=False, settings=LIMITED) as here:
        workers = [Worker(here) for _ in range(WORKERS)]
        crowded, tokens = _crowd(here)
        _job_s(here, workers)  # everybody is warm
        for kind in KINDS:
            alone, beside = [], []
            for _ in range(RUNS):
                alone.append(_job_s(here, workers))
                with _disturbed(here, kind, crowded, tokens):
                    beside.append(_job_s(here, workers))
            disturbed, calm = statistics.median(beside), statistics.median(alone)
            note = (
                f"medians of {RUNS} jobs of {REPLICAS} replicas: {disturbed:.1f} s beside it, {calm:.1f} s undisturbed"
            )
            yield Figure(f"strangers.{kind}.ratio", disturbed / calm, "", target="<= 1.2", note=note)


def _job_s(here: Service, workers: list[Worker]) -> float:
    """Returns the seconds of a job, until all its replicas are done."""
    here.post(rounds=1, tasks_per_round=REPLICAS // 3)
    began = time.perf_counter()
    work(workers, REPLICAS)
    return time.perf_counter() - began


def _crowd(here: Service) -> tuple[str, list[str]]:
    """A job with many accounts, paused so that nobody works on it, and the tokens of wallets never paid."""
    job = here.post(rounds=1, tasks_per_round=1)
    here.act(job, "pause")
    return job, [token for _, token in sign_in_wallets(here, ACCOUNTS, job)[:WALLETS]]


@contextmanager
def _disturbed(here: Service, kind: str, job: str, tokens: list[str]) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.rig.stranger", here.url, kind, job, *tokens]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as stranger:
        time.sleep(BEGUN_S)
        try:
            yield
        finally:
            stranger.kill()
