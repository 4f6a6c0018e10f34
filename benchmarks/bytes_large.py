"""Loss by bytes of a GPT of 10.8 million parameters, as `bytes` has it of a small one: one seed, for it takes long.

The size, AdamW and its rate are those of nanoGPT's character model (config/train_shakespeare_char.py); rows, context
and steps are what two busy cores allow. Muon would take most of the time here: its products are of float64.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Final

import torch

from benchmarks.bytes import equal_loss, sent
from benchmarks.figure import Figure
from benchmarks.rig import kept_states
from benchmarks.rig.byte_pictures import LARGE, draw
from benchmarks.rig.character_rounds import Case, Scene, Training, library
from benchmarks.rig.kept_curves import TASKS, Curve, Kept
from benchmarks.rig.rounds import GPT_10M
from gradmarket.market.step import GradientStep, InnerOptimizer, LocalStep, Schedule

PREFIX = "bytes.gpt10m"
SEED = 1
SCENE = Scene(GPT_10M.arguments, library, slice(0, None, 571), length=64)
ROWS, STEPS, H = 4, 360, 30
LONGER: Final = 18
"""Rounds of local steps: 1.5 times the tokens."""
RATE, SETTINGS, COSINE = 1e-3, {"beta2": 0.99}, Schedule(name="cosine", warmup=20)
OUTER, MOMENTUM = 0.7, 0.6
EVERY = 20
"""Steps of data-parallel training between two measured losses."""
KEPT: Final = Path("build/bytes_gpt10m")


def measure() -> Iterator[Figure]:
    torch.set_num_threads(1)
    kept = Kept(KEPT.with_suffix(".jsonl"))
    plain, ours = (kept.curve(f"{case!r} {SEED}", partial(_measured, case)) for case in cases())
    yield equal_tokens(plain, ours)
    yield ended(plain, ours)
    *reached, end = equal_loss([plain], [ours], f"{PREFIX}.")
    yield from (*reached, end) if ours.reached(plain.final) else (end,)
    kept.end(LARGE)
    rmtree(KEPT)
    draw()


def equal_tokens(plain: Curve, ours: Curve) -> Figure:
    """Of both, the loss after as many tokens, the most with which both were measured."""
    by_step = dict(plain.points)
    rounds, loss = max(point for point in ours.points if point[0] * ours.steps in by_step)
    steps, sent = rounds * ours.steps, plain.total(rounds * ours.steps) / ours.total(rounds)
    note = (
        f"{loss:.3f} nats and {by_step[steps]:.3f} after {steps} steps; data-parallel took {sent:.0f} times the bytes"
    )
    ratio = loss / by_step[steps]
    return Figure(f"{PREFIX}.equal_tokens_loss", ratio, "", "data-parallel", ratio, note=note)


def ended(plain: Curve, ours: Curve) -> Figure:
    """The last loss of local steps, in more tokens."""
    more = ours.rounds * ours.steps / plain.rounds
    note = f"{ours.rounds} rounds, {more:.2f} times the tokens"
    return Figure(f"{PREFIX}.local_loss", ours.final, "nats", "data-parallel", ours.final / plain.final, note=note)


def cases() -> Iterator[Case]:
    together = GradientStep(rows=TASKS * ROWS)  # the rows of all tasks as those of one: the same mean
    yield Case("data_parallel", together, STEPS, "adamw", RATE, SETTINGS, 1, schedule=COSINE)
    inner = InnerOptimizer(name="adamw", lr=RATE, clip=1.0, schedule=COSINE, **SETTINGS)
    step = LocalStep(kind="local", rows=ROWS, steps=H, optimizer=inner)
    step = step.model_copy(update={"rewarm": step.usual_rewarm})
    yield Case("ours", step, LONGER, "nesterov", OUTER, {"momentum": MOMENTUM}, TASKS, "two_bit", "two_bit")


def _measured(case: Case) -> Curve:
    training = Training(case, SEED, SCENE)
    every = EVERY if case.step.kind == "gradient" else 1
    points, spent = kept_states.measured(training, case.rounds, every, KEPT / case.name)
    return Curve(case.name, SEED, case.step.moves, ROWS * SCENE.length, *sent(training.layout, case), points, spent)
