"""Which outer momentum suits how many inner steps: local steps of a small character model, as many in all.

With AdamW inside and its usual re-warm; for one of them with Muon, which has none.
"""

import os
from collections.abc import Iterator
from statistics import mean

from benchmarks.figure import Figure
from benchmarks.local_loss import ADAMW, MUON, ROWS
from benchmarks.rig.character_rounds import Case, Training
from benchmarks.size import sized
from gradmarket.market.step import InnerOptimizer, LocalStep

PREFIX = "local.momentum"
SEEDS = range(int(os.environ.get("SEEDS", sized("3", "1"))))
INNER_STEPS = sized(300, 4)
"""Of all rounds together."""
STEPS = sized((5, 15, 50), (2, 4))
MOMENTA = (0.3, 0.6, 0.9)
CASES = {"": (ADAMW, STEPS), ".muon": (MUON, STEPS[1:2])}


def measure() -> Iterator[Figure]:
    for name, (inner, all_steps) in CASES.items():
        for steps in all_steps:
            yield from _compared(f"{PREFIX}{name}.h{steps}", inner, steps)


def _compared(name: str, inner: InnerOptimizer, steps: int) -> Iterator[Figure]:
    losses = {momentum: [_training(inner, steps, momentum, seed).loss() for seed in SEEDS] for momentum in MOMENTA}
    best = min(mean(by_seed) for by_seed in losses.values())
    for momentum, by_seed in losses.items():
        note = f"seeds: {', '.join(f'{loss:.3f}' for loss in by_seed)}; {INNER_STEPS // steps} rounds"
        loss = mean(by_seed)
        yield Figure(f"{name}.{momentum:.1f}", loss, "nats", "the best momentum", loss / best, note=note)


def _training(inner: InnerOptimizer, steps: int, momentum: float, seed: int) -> Training:
    step = LocalStep(kind="local", rows=ROWS, steps=steps, optimizer=inner)
    step = step.model_copy(update={"rewarm": step.usual_rewarm})
    return Training(Case("outer", step, INNER_STEPS // steps, "nesterov", 0.7, {"momentum": momentum}), seed)
