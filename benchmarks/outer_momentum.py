"""Which outer momentum suits how many inner steps: local steps of a small character model, as many in all."""

import os
from collections.abc import Iterator
from statistics import mean

from benchmarks.figure import Figure
from benchmarks.local_loss import ADAMW, ROWS
from benchmarks.rig.character_rounds import Case, Training
from gradmarket.market.step import LocalStep

PREFIX = "local.momentum"
SEEDS = range(int(os.environ.get("SEEDS", "3")))
INNER_STEPS = 300
"""Of all rounds together."""
STEPS = (5, 15, 50)
MOMENTA = (0.3, 0.6, 0.9)


def measure() -> Iterator[Figure]:
    for steps in STEPS:
        losses = {momentum: [_training(steps, momentum, seed).loss() for seed in SEEDS] for momentum in MOMENTA}
        best = min(mean(by_seed) for by_seed in losses.values())
        for momentum, by_seed in losses.items():
            note = f"seeds: {', '.join(f'{loss:.3f}' for loss in by_seed)}; {INNER_STEPS // steps} rounds"
            name = f"{PREFIX}.h{steps}.{momentum:.1f}"
            yield Figure(name, mean(by_seed), "nats", "the best momentum", mean(by_seed) / best, note=note)


def _training(steps: int, momentum: float, seed: int) -> Training:
    step = LocalStep(kind="local", rows=ROWS, steps=steps, optimizer=ADAMW)
    step = step.model_copy(update={"rewarm": step.usual_rewarm})
    return Training(Case("outer", step, INNER_STEPS // steps, "nesterov", 0.7, {"momentum": momentum}), seed)
