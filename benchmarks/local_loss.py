"""Loss gained by a re-warm and by the choice of the inner optimizer: local steps of a small character model.

Each case has the same rounds, rows and outer step, and three seeds. Each re-warm is compared with none.
"""

import os
from collections.abc import Iterator
from statistics import mean

from benchmarks.figure import Figure
from benchmarks.rig.character_rounds import Case, Training
from benchmarks.size import sized
from gradmarket.market.step import InnerOptimizer, LocalStep, Schedule

PREFIX = "local.loss"
SEEDS = range(int(os.environ.get("SEEDS", sized("3", "1"))))
STEPS, ROWS, ROUNDS, TASKS = sized((15, 32, 20, 4), (2, 2, 1, 1))
REWARM = sized(5, 1)
ADAMW = InnerOptimizer(name="adamw", lr=3e-3, clip=1.0)
COSINE = InnerOptimizer(name="adamw", lr=3e-3, clip=1.0, schedule=Schedule(name="cosine"))
MUON = InnerOptimizer(name="muon", lr=3e-3, clip=1.0, adamw=["tokens.*", "places", "head.*"])
INNER = {"adamw": ADAMW, "cosine": COSINE, "muon": MUON}


def measure() -> Iterator[Figure]:
    for name, inner in INNER.items():
        losses = {rewarm: [_training(inner, rewarm, seed).loss() for seed in SEEDS] for rewarm in (0, REWARM)}
        for rewarm, by_seed in losses.items():
            note = f"seeds: {', '.join(f'{loss:.3f}' for loss in by_seed)}; a guess {_training(inner, 0, 0).guess:.3f}"
            ratio = mean(by_seed) / mean(losses[0])
            yield Figure(f"{PREFIX}.{name}.{rewarm}", mean(by_seed), "nats", "no re-warm", ratio, note=note)


def _training(inner: InnerOptimizer, rewarm: int, seed: int) -> Training:
    step = LocalStep(kind="local", rows=ROWS, steps=STEPS, optimizer=inner, rewarm=rewarm)
    return Training(Case("local", step, ROUNDS, "nesterov", 0.7, {"momentum": 0.6}, TASKS), seed)
