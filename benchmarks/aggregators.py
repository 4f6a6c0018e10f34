"""Eight answers of 8.4 million parameters, merged by each aggregator: input a second of CPU, beside copying it."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figure import Figure
from benchmarks.size import sized
from gradmarket.market.gradient.aggregators import load_aggregator
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload import encode_payload
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.gradient.round_merge import MergedAnswer, Recipe
from graphdoc.encoding import Bytes
from tests.kit.whole_merge import merge_answers

PREFIX = "aggregate."
ANSWERS = 8
PARAMETERS = sized(2**23, 2**10)
SAMPLES = sized(5, 1)
LAYOUT = Layout((LayoutEntry("loss", (), "loss"), LayoutEntry("weight", (PARAMETERS,), "gradient")))
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "mean": ({}, ">= 1.2"),
    "trimmed_mean": ({"trim": 1}, ">= 2.4"),
    "median": ({}, ">= 2.4"),
    "krum": ({"hostile": 2}, ">= 3"),
    "geometric_median": ({}, ">= 3"),
    "centered_clip": ({"hostile": 0}, ">= 3"),
}


def measure() -> Iterator[Figure]:
    answers = [MergedAnswer(payload(seed), b"task") for seed in range(ANSWERS)]
    size = sum(len(answer.data) for answer in answers)
    target = np.empty(len(answers[0].data), np.uint8)
    for name, (settings, limit) in CASES.items():
        rule = load_aggregator(name)
        recipe = Recipe(LAYOUT, load_codec("fp32"), rule, rule.Settings(**settings), 1000.0, ANSWERS)
        merging, copying = rates(size, partial(merge_answers, recipe, answers), partial(copy, answers, target))
        note = f"{min(merging):.3g} to {max(merging):.3g}; copying {min(copying):.3g} to {max(copying):.3g} GB/s"
        best = median(merging)
        yield Figure(PREFIX + name, best, "GB/s", "copying the same bytes", best / median(copying), limit, note)


def payload(seed: int) -> Bytes:
    generator = np.random.default_rng(seed)
    weight = 1e-3 * generator.standard_normal(PARAMETERS, np.float32)
    return encode_payload(LAYOUT, {"loss": np.ones((), np.float32), "weight": weight}, load_codec("fp32"), b"task")


def copy(answers: list[MergedAnswer], target: NDArray[np.uint8]) -> None:
    for answer in answers:
        np.copyto(target, np.frombuffer(answer.data, np.uint8))


def rates(size: int, *actions: Callable[[], object]) -> list[list[float]]:
    """Returns GB for each CPU second of each action, in turn, so that other load on the machine slows all alike."""
    found: list[list[float]] = [[] for _ in actions]
    for sample in range(SAMPLES + 1):
        for action, seen in zip(actions, found, strict=True):
            began = time.process_time()
            action()
            if sample:  # the first is for the caches
                seen.append(size / 1e9 / (time.process_time() - began))
    return found
