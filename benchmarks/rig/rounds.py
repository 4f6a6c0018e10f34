"""Rounds of a market whose workers replay a recorded payload: each round's time, and the service's CPU."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from benchmarks.rig.cpu import children_cpu_s, own_cpu_s
from benchmarks.rig.patience import PATIENCE_S
from benchmarks.rig.service import Service, service
from benchmarks.rig.worker_processes import start_worker
from benchmarks.size import sized
from gradmarket.market.terms import blob_digest
from graphdoc.formats import format_of

ROWS = 64


@dataclass(frozen=True)
class Model:
    """`dtype`, `shape`: of a row of `x`; `y` is next tokens where those are whole numbers. `elements`: parameters."""

    architecture: str
    arguments: dict[str, Any]
    dtype: str
    shape: tuple[int, ...]
    classes: int
    optimizer: dict[str, Any]
    elements: int

    def rows(self) -> dict[str, np.ndarray]:
        drawn = np.random.default_rng(0)
        if self.dtype == "int64":
            x = drawn.integers(0, self.classes, (ROWS, *self.shape))
            return {"x": x, "y": np.roll(x, -1, axis=1)}
        numbers = drawn.standard_normal((ROWS, *self.shape), np.float32)
        return {"x": numbers, "y": drawn.integers(0, self.classes, ROWS)}


SGD, ADAMW = {"name": "sgd", "lr": 0.1, "momentum": 0.9}, {"name": "adamw", "lr": 3e-4}
MLP_1M = sized(
    Model("mlp", {"hidden": [768, 768, 256]}, "float32", (256,), 10, SGD, 987_402),
    Model("mlp", {"hidden": [8]}, "float32", (16,), 10, SGD, 226),
)
GPT_10M = sized(
    Model("gpt", {"depth": 6, "width": 384, "heads": 6}, "int64", (128,), 128, ADAMW, 10_795_008),
    Model("gpt", {"depth": 1, "width": 16, "heads": 2}, "int64", (8,), 16, ADAMW, 3_952),
)
"""The models of the peers' benchmarks: 0.99 and 10.8 million parameters, but for the smallest run."""


@dataclass(frozen=True)
class Rounds:
    """Seconds of each counted round, and CPU seconds a round of the service and of all workers together."""

    seconds: list[float]
    service_cpu_s: float
    workers_cpu_s: float


@dataclass(frozen=True)
class Pace:
    """`seconds`: of a step. `leases`: of a worker at once. `warm`: rounds that are not counted.

    `job`: further fields of the job.
    """

    seconds: float = 0.0
    leases: int = 1
    warm: int = sized(3, 1)
    job: dict[str, Any] = field(default_factory=dict)


def measured(here: Service, model: Model, replicas: int, count: int, pace: Pace = Pace()) -> Rounds:
    """Two tasks a round, a worker for each replica, or in the smallest run one for both.

    Each round ends when its parameters are published.
    """
    job = here.post(
        model={"architecture": model.architecture, "arguments": model.arguments},
        data={"manifest": packed(here, model)},
        optimizer=model.optimizer,
        rounds=pace.warm + count + 2,
        tasks_per_round=2,
        replication={"name": "fixed", "replicas": replicas, "max_replicas": replicas},
        **pace.job,
    )
    with _workers(here, sized(2 * replicas, replicas), pace) as workers:
        latest_s = PATIENCE_S + 3 * pace.seconds * (pace.warm + count)
        _wait(here, job, pace.warm, latest_s)
        before, others = here.cpu_s(), sum(map(_cpu_s, workers))
        ended = _wait(here, job, pace.warm + count, latest_s)
        own, theirs = here.cpu_s() - before, sum(map(_cpu_s, workers)) - others
    counted = ended[pace.warm - 1 : pace.warm + count]
    done = len(ended) - pace.warm
    return Rounds([after - before for before, after in pairwise(counted)], own / done, theirs / done)


def packed(here: Service, model: Model) -> str:
    rows = model.rows()
    data = format_of("safetensors").write(rows)
    part = {"name": "0", "link": f"/v1/blobs/{blob_digest(data)}", "digest": blob_digest(data), "bytes": len(data)}
    columns: dict[str, dict[str, Any]] = {
        name: {"dtype": str(array.dtype), "shape": list(array.shape[1:])} for name, array in rows.items()
    }
    columns["y"]["classes"] = model.classes
    manifest = json.dumps({"inputs": columns, "partitions": [{**part, "rows": ROWS}]}).encode()
    for blob in (data, manifest):
        url = f"{here.url}/v1/blobs/{blob_digest(blob)}"
        httpx.put(url, content=blob, headers=here.headers, timeout=PATIENCE_S).raise_for_status()
    return blob_digest(manifest)


@contextmanager
def _workers(here: Service, count: int, pace: Pace) -> Iterator[list[psutil.Process]]:
    """They go on until the end of the block, then leave at once."""
    running = [start_worker(here, pace.seconds, replayed=True, leases=pace.leases)[0] for _ in range(count)]
    try:
        yield [psutil.Process(process.pid) for process in running]
    finally:
        for number in (signal.SIGINT, signal.SIGINT):
            for process in running:
                process.send_signal(number)
            time.sleep(0.5)
        for process in running:
            process.wait()


def _cpu_s(process: psutil.Process) -> float:
    return own_cpu_s(process) + children_cpu_s(process)


def _wait(here: Service, job: str, count: int, latest_s: float) -> list[float]:
    """Returns when each round ended, once `count` have."""
    until = time.monotonic() + latest_s
    while time.monotonic() < until:
        asked = "SELECT closed_at FROM rounds WHERE job_id = ? AND state = 'closed' ORDER BY number"
        ended = [float(at) for (at,) in here.rows(asked, job)]
        if len(ended) >= count:
            return ended
        time.sleep(0.02)
    raise TimeoutError(str(here.get(f"jobs/{job}")))


def traced(spans: Path) -> None:
    """Writes the spans of a market with GPT rounds, R = 1."""
    spans.unlink(missing_ok=True)
    with service(shared=False, settings={"GRADMARKET_TRACING": str(spans.resolve())}) as here:
        measured(here, GPT_10M, 1, int(os.environ.get("ROUNDS", "31")))


if __name__ == "__main__":
    traced(Path(sys.argv[1]))
