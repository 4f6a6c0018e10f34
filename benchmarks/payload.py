"""Payloads hashed onto disk or folded from the page cache, and updates fetched."""

import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from benchmarks.figure import Figure
from benchmarks.rig.patience import PATIENCE_S
from benchmarks.rig.service import Service, service
from benchmarks.rig.workers import Worker, payload_of
from benchmarks.size import sized
from gradmarket.market.gradient.aggregators import load_aggregator
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.gradient.round_merge import MergedAnswer, Recipe
from requester.blobs.disk import DiskBlobs
from tests.kit.whole_merge import merge_answers

PREFIX = "payload"
SAMPLES = sized(5, 1)
SIZES = {
    "40mb": (sized((3120, 3120), (16, 16)), ">= 0.6", ">= 1.0"),
    "4mb": (sized((960, 960), (8, 8)), ">= 0.4", ">= 0.8"),
}
"""Hidden layers by the bytes of their gradient, and the least GB/s durable and folded."""
ANSWERS = 4


def measure() -> Iterator[Figure]:
    for size, (hidden, durable, folded) in SIZES.items():
        with service(shared=False) as here:
            yield _durable(here, f"payload.durable_gbs.{size}", hidden, durable)
            yield _download(here, f"payload.download_gbs.{size}")
        yield _fold(f"payload.fold_gbs.{size}", len(payload_of(*hidden)), folded)


def _figure(name: str, length: int, seconds: list[float], target: str) -> Figure:
    rates = sorted(length / took / 1e9 for took in seconds)
    note = f"{length / 1e6:.3g} MB; {rates[0]:.3g} to {rates[-1]:.3g} over {len(rates)}"
    return Figure(name, median(rates), "GB/s", target=target, note=note)


def _durable(here: Service, name: str, hidden: tuple[int, ...], target: str) -> Figure:
    """By the worker's own door: the time from the request's first byte to the answer with the voucher.

    No two payloads are the same: bytes that lie there already would not be written again.
    """
    job: dict[str, Any] = {
        "model": {"architecture": "mlp", "arguments": {"hidden": list(hidden)}},
        "tasks_per_round": SAMPLES + 4,
    }
    here.post(**job, replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
    worker, zeros = Worker(here), payload_of(*hidden)
    while len(worker.uploads) <= SAMPLES:
        loss = np.float32(len(worker.uploads)).tobytes()
        worker.answer_with(loss + zeros[len(loss) :])
        worker.batch()
    del worker.uploads[0]  # the first one warms up
    return _figure(name, len(worker.payload), worker.uploads, target)


def _download(here: Service, name: str) -> Figure:
    place = urlsplit(here.url)
    http = HTTPConnection(str(place.hostname), place.port, timeout=PATIENCE_S)
    job = here.get("jobs")["items"][-1]["id"]
    digest = here.get(f"jobs/{job}/rounds")["items"][0]["parameters"]
    seconds, length, buffer = [], 0, bytearray(1 << 20)
    for _ in range(SAMPLES):
        began, length = time.perf_counter(), 0
        http.request("GET", f"/v1/blobs/{digest}", headers=here.headers)
        answer = http.getresponse()
        while count := answer.readinto(buffer):
            length += count
        seconds.append(time.perf_counter() - began)
    return _figure(name, length, seconds, ">= 1.0")


def _fold(name: str, length: int, target: str) -> Figure:
    """Decoded and summed exactly, as a round's merge does it, from files that were just written."""
    count = length // 4 - 1
    layout = Layout((LayoutEntry("loss", (), "loss"), LayoutEntry("w", (count,), "gradient")))
    rule = load_aggregator("mean")
    recipe = Recipe(layout, load_codec("fp32"), rule, rule.Settings(), 1000.0, ANSWERS)
    seconds = []
    with TemporaryDirectory() as folder:
        blobs = DiskBlobs(Path(folder))
        made = np.random.default_rng(0).standard_normal(count + 1).astype(np.float32) * np.float32(1e-3)
        digest = blobs.put(made.tobytes())
        for _ in range(SAMPLES):
            with blobs.mapped(digest) as data:
                began = time.perf_counter()
                merge_answers(recipe, [MergedAnswer(data, bytes(32))] * ANSWERS)
                seconds.append(time.perf_counter() - began)
    return _figure(name, ANSWERS * length, seconds, target)
