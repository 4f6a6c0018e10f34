"""Loss that an overlap of rounds costs: a small character model, with an overlap of 0 and of 1.

It is trained by the market's own rules on one machine: same rounds, rows and settings, for gradient and local steps.
"""

import os
from collections.abc import Iterator
from itertools import product
from statistics import mean

from benchmarks.figure import Figure
from benchmarks.rig.character_rounds import Case, Training
from benchmarks.size import sized
from gradmarket.market.step import GradientStep, InnerOptimizer, LocalStep

PREFIX = "overlap.loss"
SEEDS = range(int(os.environ.get("SEEDS", sized("3", "1"))))
ROWS, STEPS = sized((32, 20), (2, 2))
INNER = InnerOptimizer(name="adamw", lr=3e-3, clip=1.0)
LOCAL = LocalStep(kind="local", rows=ROWS, steps=STEPS, optimizer=INNER)
CASES = (
    Case("gradient", GradientStep(rows=ROWS), sized(200, 2), "adamw", 3e-3, {}),
    Case("local", LOCAL, sized(20, 2), "nesterov", 0.7, {"momentum": 0.6}),
)


def measure() -> Iterator[Figure]:
    for case in CASES:
        losses: dict[int, list[float]] = {0: [], 1: []}
        for seed, delay in product(SEEDS, losses):
            losses[delay].append(Training(case, seed).loss(delay))
        rounds = f"{case.rounds} rounds; a guess {Training(case, 0).guess:.3f}"
        for delay, by_seed in losses.items():
            note = f"seeds: {', '.join(f'{loss:.3f}' for loss in by_seed)}; {rounds}"
            ratio = mean(by_seed) / mean(losses[0])
            yield Figure(f"overlap.loss.{case.name}.{delay}", mean(by_seed), "nats", "no overlap", ratio, note=note)
