"""Accuracy that noise by row costs the ten-holder example, on the requester's rows after 30 rounds.

Each holder takes one step of 64 of its rows a round, in epochs as its worker takes them (private.row_uses): few steps
of many rows, so that a row is used seldom and its noise divided by many. Held against the example's own steps, which
have no noise.
"""

from collections.abc import Iterator
from statistics import mean
from typing import Final

from benchmarks.figure import Figure
from benchmarks.private import ROUNDS, SEEDS, Holders
from gradmarket.market.features.private import row_budget
from gradmarket.market.step import RowPrivacy

PREFIX = "private.by_row."
ASKED: Final = RowPrivacy(clip_norm=1.0, noise_multiplier=3.0, epsilon=8.0, delta=1e-3)
STEP: Final = {"kind": "local", "rows": 64, "steps": 1, "optimizer": {"name": "sgd", "lr": 1.0}}


def measure() -> Iterator[Figure]:
    scenes = [Holders(seed, {**STEP, "per_row": ASKED.model_dump()}) for seed in SEEDS]
    least = min(len(y) for _, y in scenes[0].theirs)
    uses = row_budget.count_row_uses(ROUNDS * scenes[0].step.moves, least // scenes[0].step.rows)
    own, without = mean(one.accuracy() for one in scenes), mean(Holders(seed).accuracy() for seed in SEEDS)
    note = f"one step of {STEP['rows']} rows a round, multiplier {ASKED.noise_multiplier:g}"
    yield Figure(f"{PREFIX}accuracy", own, "of the requester's rows", note=note)
    yield Figure(f"{PREFIX}points_lost", 100 * (without - own), "points", note=f"without noise {without:.3f}")
    note = f"at delta {ASKED.delta:g}, of a row of the holder of {least} rows, which is used {uses} times"
    yield Figure(f"{PREFIX}epsilon", row_budget.compute_spent_epsilon(ASKED, uses), "", note=note)
