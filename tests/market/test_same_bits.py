"""A round's arithmetic gives the same bits whatever vector instructions numpy may use."""

import hashlib
import os
import subprocess
import sys

import numpy as np
from numpy._core import _multiarray_umath as built

from gradmarket.market.gradient.aggregators import load_aggregator
from gradmarket.market.gradient.arithmetic import compute_learning_rate
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.inspection import inspect_shards
from gradmarket.market.gradient.one_step import OptimizerStep
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.gradient.payload import decode_shards, encode_payload
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.gradient.round_merge import MergedAnswer, Recipe
from gradmarket.market.gradient.round_update import build_model_state
from tests.kit.whole_merge import apply_merged_answer, merge_answers
from tests.lanes import FULL

PINNED = "4bd6109f5f271236a32bcb23b309542b"
LAYOUT = Layout(
    (
        LayoutEntry("loss", (), "loss"),
        LayoutEntry("weight", (300, 333), "gradient"),
        LayoutEntry("mean", (50,), "buffer"),
    )
)
MOVES = [
    ("nesterov", {"momentum": 0.9, "weight_decay": 0.01}, None),
    ("adamw", {}, None),
    ("lamb", {}, None),
    ("sgd", {"momentum": 0.9}, None),
    ("adamw", {}, "two_bit"),
    ("lamb", {}, "int8"),
]
"""Optimizer, its settings, and the codec of the published updates."""


def values(seed: int) -> dict[str, np.ndarray]:
    """From integers alone, so that the inputs have the same bits too."""
    generator = np.random.Generator(np.random.PCG64(seed))
    drawn = {entry.name: generator.integers(-(2**23), 2**23, entry.shape) for entry in LAYOUT.entries}
    return {name: np.asarray(integers * 2.0**-26, np.float32) for name, integers in drawn.items()}


def digest() -> str:
    """Of everything that three rounds with each codec and optimizer leave behind."""
    hasher = hashlib.blake2b(digest_size=16)
    for name, settings, downlink in MOVES:
        rule, mean, packer = load_optimizer(name), load_aggregator("mean"), load_codec("bf16")
        move = OptimizerStep(rule, rule.Settings(**settings), 0.7, load_codec(downlink) if downlink else None)
        recipe, model = (
            Recipe(LAYOUT, packer, mean, mean.Settings(), 1e3, 4),
            build_model_state(LAYOUT, values(99), move),
        )
        for number in range(3):
            blobs = [encode_payload(LAYOUT, values(number * 4 + index), packer, b"") for index in range(4)]
            verdicts = [inspect_shards(LAYOUT, decode_shards(LAYOUT, blob, packer, b""), 1e3) for blob in blobs]
            merged = merge_answers(recipe, [MergedAnswer(blob, b"") for blob in blobs])
            model = apply_merged_answer(LAYOUT, model, merged, move, compute_learning_rate("cosine", 0.1, number, 3))
            hasher.update(repr(verdicts).encode())
        for arrays in (model.tensors, model.memory):
            for key in sorted(arrays):
                hasher.update(key.encode() + arrays[key].tobytes())
        hasher.update(model.update)
    return hasher.hexdigest()


def test_pinned() -> None:
    assert digest() == PINNED


@FULL
def test_without_the_wide_instructions_too() -> None:
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(built.__cpu_dispatch__)}
    answer = subprocess.run(
        [sys.executable, "-m", __name__], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == ["False", PINNED]


if __name__ == "__main__":
    print(any(built.__cpu_features__[feature] for feature in built.__cpu_dispatch__), digest())
