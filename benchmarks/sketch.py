"""Sketching a gradient, beside memcpy: CPU time of one thread."""

import time
from collections.abc import Callable, Iterator
from statistics import median

import numpy as np

from benchmarks.figure import Figure
from benchmarks.size import sized
from gradmarket.market.gradient.arrays import Tensors
from gradmarket.market.gradient.projection import sketch_tensors
from gradmarket.market.terms import Hash

PREFIX = "sketch."
SAMPLES = sized(11, 1)
LARGE = {"one": (sized(10_000_000, 1_000),)}
GPT = {f"layer{index}": (375, 384) for index in range(sized(75, 2))}
"""10.8M parameters in 75 tensors."""


def measure() -> Iterator[Figure]:
    for name, shapes, target in (("sketch.gbs", LARGE, ">= 3"), ("sketch.gbs.gpt", GPT, "")):
        generator = np.random.default_rng(0)
        tensors = {key: generator.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}
        yield _figure(name, tensors, target)


def _figure(name: str, tensors: Tensors, target: str) -> Figure:
    size = sum(tensor.nbytes for tensor in tensors.values())
    copies = {key: np.empty_like(tensor) for key, tensor in tensors.items()}

    def copy() -> None:
        for key, tensor in tensors.items():
            np.copyto(copies[key], tensor)

    copied = _speeds(copy, size)
    sketched = _speeds(lambda: sketch_tensors(tensors, Hash(bytes(32))), size)
    note = f"{min(sketched):.3g} to {max(sketched):.3g} GB/s; memcpy {median(copied):.3g}"
    return Figure(name, median(sketched), "GB/s", "memcpy", median(sketched) / median(copied), target, note)


def _speeds(work: Callable[[], object], size: int) -> list[float]:
    """GB/s, each sample in CPU seconds of this thread."""
    work()
    speeds = []
    for _ in range(SAMPLES):
        began = time.thread_time()
        work()
        speeds.append(size / (time.thread_time() - began) / 1e9)
    return speeds
