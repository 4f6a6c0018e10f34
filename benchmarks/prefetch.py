"""How long a worker that needs a new partition for every task computes nothing, on a link twice as fast as it needs.

The worker's own bench, fetcher and runner; a server of this file that sends no faster than the link would.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

from benchmarks.figure import Figure
from gradmarket.compute.cache import Cache
from gradmarket.compute.executor import Executor
from gradmarket.compute.fetch import Fetcher
from gradmarket.compute.task_run import Compute
from gradmarket.data.inputs import columns_of
from gradmarket.market.data.formats import format_of
from gradmarket.market.data.manifest import Labelled, Manifest, Partition
from gradmarket.market.digests import blob_digest
from gradmarket.market.job import JobSpec, Publication, canonical
from gradmarket.market.messages import Offer
from gradmarket.market.model.tensors import pack
from gradmarket.market.rules.secrets import task_seed
from gradmarket.market.terms import Amount, Digest, Hash, Units
from gradmarket.market.wire import hash_of
from gradmarket.runner import Runner
from gradmarket.worker.protocol.policy import WorkLimits

PREFIX = "worker.idle_fraction"
TASKS = 12
ROWS, WIDTH, CLASSES = 8192, 128, 10
HIDDEN = [512, 512]
FASTER = 2.0
CHUNK = 2**16
LIMITS = WorkLimits(frozenset(), Amount(1), 1, 1, 60.0, max_flops=1e15, max_memory=2**33)


class Link:
    """`rate`: bytes a second that all answers share; None: as fast as it goes."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.rate: float | None = None
        self._free_at = 0.0
        self._lock = threading.Lock()

    def put(self, data: bytes) -> Digest:
        self.blobs[blob_digest(data)] = data
        return blob_digest(data)

    def wait_for(self, size: int) -> None:
        if self.rate is None:
            return
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + size / self.rate
            until = self._free_at
        time.sleep(max(0.0, until - time.monotonic()))


@contextmanager
def served(link: Link) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = link.blobs[self.path.rpartition("/")[2]]
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            for start in range(0, len(data), CHUNK):
                link.wait_for(min(CHUNK, len(data) - start))
                self.wfile.write(data[start : start + CHUNK])

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def publication(link: Link, runner: Runner) -> Publication:
    runner.turn("publishing", publishes=True)
    made = runner.publish("mlp", {"hidden": HIDDEN}, Labelled(dtype="float32", shape=(WIDTH,), classes=CLASSES), seed=0)
    generator = np.random.default_rng(0)
    parts = []
    for number in range(TASKS):
        x = generator.standard_normal((ROWS, WIDTH)).astype(np.float32)
        arrays = {"x": x, "y": generator.integers(0, CLASSES, ROWS)}
        data = format_of("safetensors").write(arrays)
        digest = link.put(data)
        parts.append(Partition(name=str(number), link=f"/v1/blobs/{digest}", digest=digest, bytes=len(data), rows=ROWS))
    manifest = Manifest(inputs=columns_of(arrays), partitions=tuple(parts))
    spec = {
        "name": "prefetch", "model": {"architecture": "mlp"}, "data": {"ready": "digits"}, "step": {"rows": ROWS},
        "optimizer": {"lr": 0.1}, "rounds": 1, "tasks_per_round": TASKS, "price": "1",
    }  # fmt: skip
    return Publication(
        job="0" * 16,
        spec=JobSpec.model_validate(spec),
        document=link.put(made.document),
        evaluation=None,
        parameters=link.put(pack(made.parameters)),
        manifest=link.put(canonical(manifest.model_dump(mode="json"))),
    )


def offer(published: Publication, task: int) -> Offer:
    parameters, nothing = hash_of(published.parameters), Hash(bytes(32))
    seed = task_seed(0, 0, task)
    return Offer(1, nothing, 0, task, 0, parameters, seed, Units(1), nothing, 600, 600, 600)


def counting(compute: Compute, seconds: list[float]) -> Compute:
    def counted(*inputs: object) -> dict[str, np.ndarray]:
        began = time.perf_counter()
        answer = compute(*inputs)  # type: ignore[arg-type]
        seconds.append(time.perf_counter() - began)
        return answer

    return counted


def idle(work: Callable[[int], object], computing: list[float]) -> float:
    """The fraction of the time in which nothing is computed, the first task, which nothing preceded, left out."""
    work(0)
    computing.clear()
    began = time.perf_counter()
    for task in range(1, TASKS):
        work(task)
    return 1 - sum(computing) / (time.perf_counter() - began)


def measure() -> Iterator[Figure]:
    link, computing = Link(), []
    with tempfile.TemporaryDirectory() as folder, Runner() as runner, served(link) as origin:
        published = publication(link, runner)
        with closing(Fetcher(Cache(Path(folder), 2**30), origin, 2**30)) as fetcher:
            bench = Executor(runner, fetcher, LIMITS, counting(runner.compute, computing))
            step = bench.trial(published)
            size = ROWS * (4 * WIDTH + 8)
            link.rate = FASTER * size / step
            found = idle(lambda task: bench.work(published, offer(published, task)), computing)
    note = f"steps of {1000 * step:.0f} ms, a partition of {size / 1e6:.1f} MB each, at {link.rate / 1e6:.0f} MB/s"
    alone = 1 / (1 + FASTER)
    yield Figure("worker.idle_fraction", found, "", "fetching first", found / alone, "<= 0.02", note)
