"""Loss by bytes of large GPTs, as `bytes` measures it of a small one: one seed, since they take long.

AdamW and its rates are those of nanoGPT (config/train_shakespeare_char.py, train_gpt2.py); rows, context and steps are
those that a part of two cores allows. Muon would take most of the time here: its products are of float64.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Final

import torch

from benchmarks.bytes import equal_loss, sent
from benchmarks.figure import Figure
from benchmarks.rig import kept_states
from benchmarks.rig.byte_pictures import draw, result_of
from benchmarks.rig.character_rounds import Case, Scene, Training, library
from benchmarks.rig.kept_curves import TASKS, Curve, Kept
from benchmarks.rig.rounds import GPT_10M
from benchmarks.size import OUTPUT, curves_folder, pictures_folder, sized
from gradmarket.market.step import GradientStep, InnerOptimizer, LocalStep, Schedule

PREFIX = "bytes.gpt10m"
SEED = 1
SETTINGS, COSINE = {"beta2": 0.99}, Schedule(name="cosine", warmup=sized(20, 1))
OUTER, MOMENTUM = 0.7, 0.6


@dataclass(frozen=True)
class Large:
    """`blocks`: of the GPT. `rows`: of a task's step. `steps`: data-parallel ones, a loss measured after each `every`.

    `local`, `rounds`: inner steps of a round of local steps, and how many such rounds. `rate`: AdamW's.
    """

    name: str
    blocks: dict[str, int]
    rows: int
    steps: int
    every: int
    local: int
    rounds: int
    rate: float

    @property
    def scene(self) -> Scene:
        return Scene(self.blocks, library, slice(0, None, sized(571, 5710)), length=sized(64, 8))

    @property
    def prefix(self) -> str:
        return f"bytes.{self.name}"


GPT10M: Final = Large(
    "gpt10m",
    GPT_10M.arguments,
    rows=sized(4, 1),
    steps=sized(360, 4),
    every=sized(20, 2),
    local=sized(30, 2),
    rounds=sized(18, 2),
    rate=1e-3,
)


def measure() -> Iterator[Figure]:
    yield from measured(GPT10M)


def measured(large: Large) -> Iterator[Figure]:
    torch.set_num_threads(1)
    folder = sized(Path("build"), OUTPUT) / f"bytes_{large.name}"
    kept = Kept(folder.with_suffix(".jsonl"))
    plain, ours = (kept.curve(f"{case!r} {SEED}", partial(_trained, large, case, folder)) for case in cases(large))
    yield from equal_tokens(large.prefix, plain, ours)
    yield ended(large.prefix, plain, ours)
    *reached, end = equal_loss([plain], [ours], f"{large.prefix}.")
    yield from (*reached, end) if ours.reached(plain.final) else (end,)
    kept.end(curves_folder() / result_of(large.name).name)
    rmtree(folder)
    draw(pictures_folder())


def equal_tokens(prefix: str, plain: Curve, ours: Curve) -> Iterator[Figure]:
    """Of both, loss and bytes after as many tokens, the most with which both were measured."""
    by_step = dict(plain.points)
    rounds, loss = max(point for point in ours.points if point[0] * ours.steps in by_step)
    steps = rounds * ours.steps
    ratio, note = loss / by_step[steps], f"{loss:.3f} nats and {by_step[steps]:.3f} after {steps} steps"
    yield Figure(f"{prefix}.equal_tokens_loss", ratio, "", "data-parallel", ratio, note=note)
    sent, own = plain.total(steps), ours.total(rounds)
    yield Figure(f"{prefix}.equal_tokens_bytes", sent / own, "times", note=f"up and down, {sent:.3g} over {own:.3g}")


def ended(prefix: str, plain: Curve, ours: Curve) -> Figure:
    """The last loss of local steps, which may have seen more tokens."""
    more = ours.rounds * ours.steps / plain.rounds
    note = f"{ours.rounds} rounds, {more:.2f} times the tokens"
    return Figure(f"{prefix}.local_loss", ours.final, "nats", "data-parallel", ours.final / plain.final, note=note)


def cases(large: Large) -> Iterator[Case]:
    together = GradientStep(rows=TASKS * large.rows)  # the rows of all tasks as those of one: the same mean
    yield Case("data_parallel", together, large.steps, "adamw", large.rate, SETTINGS, 1, schedule=COSINE)
    inner = InnerOptimizer(name="adamw", lr=large.rate, clip=1.0, schedule=COSINE, **SETTINGS)
    step = LocalStep(kind="local", rows=large.rows, steps=large.local, optimizer=inner)
    step = step.model_copy(update={"rewarm": step.usual_rewarm})
    yield Case("ours", step, large.rounds, "nesterov", OUTER, {"momentum": MOMENTUM}, TASKS, "two_bit", "two_bit")


def _trained(large: Large, case: Case, folder: Path) -> Curve:
    training = Training(case, SEED, large.scene)
    every = large.every if case.step.kind == "gradient" else 1
    points, spent = kept_states.measured(training, case.rounds, every, folder / case.name)
    tokens = large.rows * large.scene.length
    return Curve(case.name, SEED, case.step.moves, tokens, *sent(training.layout, case), points, spent)
