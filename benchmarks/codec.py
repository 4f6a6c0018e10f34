"""Codecs packing and unpacking float32 gradients on one core, beside a copy of the bytes."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import numpy as np

from benchmarks.figure import Figure
from benchmarks.size import sized
from gradmarket.market.gradient.codecs import load_codec

PREFIX = "codec."
ELEMENTS = sized(2**20, 2**10)
SAMPLES = sized(25, 1)
SEED = bytes(32)
TARGETS = {"int8": (">= 4", ">= 6"), "int4": (">= 2", ">= 2"), "fp4": (">= 2", ">= 2"), "two_bit": (">= 2", ">= 2")}
"""Least GB/s of float32 encoded and decoded."""
OTHERS = {"topk": ("", ""), "bf16": ("", "")}


def measure() -> Iterator[Figure]:
    shard = np.random.default_rng(1).standard_normal(ELEMENTS).astype(np.float32)
    copied = _rate(shard.nbytes, shard.copy)
    for name, (encode, decode) in (TARGETS | OTHERS).items():
        used = load_codec(name)
        packed = used.pack(shard, SEED)
        bits = 8 * len(packed) / ELEMENTS
        yield Figure(f"codec.{name}.bits", bits, "bits an element")
        rates = {
            "encode": (_rate(shard.nbytes, partial(used.pack, shard, SEED)), encode),
            "decode": (_rate(shard.nbytes, partial(used.unpack, memoryview(packed), ELEMENTS, SEED)), decode),
        }
        for rate_name, (rate, target) in rates.items():
            note = f"of float32, {ELEMENTS} elements"
            yield Figure(f"codec.{name}.{rate_name}_gbs", rate, "GB/s", "a copy", rate / copied, target, note)


def _rate(size: int, work: Callable[[], object]) -> float:
    """Returns GB/s, the median of several runs after one that warms up."""
    work()
    seconds = []
    for _ in range(SAMPLES):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return size / median(seconds) / 1e9
