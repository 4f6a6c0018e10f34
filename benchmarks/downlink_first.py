"""Loss with a finer codec for the first rounds' updates: local steps of `downlink`, other seeds.

Whole parameters, `two_bit`, and `two_bit` after five rounds of `int4`: chosen in a trial, with the seeds of `downlink`.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from statistics import mean

import torch

from benchmarks.figure import Figure
from benchmarks.overlap_loss import CASES
from benchmarks.rig.character_rounds import Training
from benchmarks.size import sized
from gradmarket.market.job_parts import FirstUpdates

PREFIX = "downlink.first"
SEEDS = range(3, 3 + int(os.environ.get("SEEDS", sized("3", "1"))))
FIRST = FirstUpdates(codec="int4", rounds=5)


def measure() -> Iterator[Figure]:
    torch.set_num_threads(1)
    (whole,) = (case for case in CASES if case.name == "local")
    coarse = replace(whole, downlink="two_bit")
    cases = {"fp32": whole, "two_bit": coarse, "int4_two_bit": replace(coarse, first=FIRST)}
    losses = {name: [Training(case, seed).loss() for seed in SEEDS] for name, case in cases.items()}
    for name, by_seed in losses.items():
        ratio = mean(by_seed) / mean(losses["fp32"])
        target = "" if name == "fp32" else "<= 1.01"
        note = f"{whole.rounds} rounds; nats by seed: {', '.join(f'{loss:.3f}' for loss in by_seed)}"
        yield Figure(f"{PREFIX}.{name}", ratio, "", "fp32", ratio, target, note)
