"""Local steps in two bits against stronger baselines than data-parallel training in fp32, by bytes to the same loss.

Each baseline is trained in the scene of `make bench ONLY=bytes`, with its steps, rates and seeds: data-parallel, with a
round every step. Its bytes are those of all its steps; ours are those until the loss that the baseline ends with, by
the committed curves of `bytes`. The worst of the seeds.

    bf16      both ways, two bytes an element up and down
    two_bit   both ways, as ours: the difference is the gain of local steps
    ring      in bf16: each of as many workers as tasks sends and receives 2 (n - 1) / n of the gradient a step,
              and nobody computes twice, where here three replicas of each task fetch the parameters; with the loss of
              `bf16`
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import torch

from benchmarks import bytes as scene
from benchmarks.figure import Figure
from benchmarks.rig import byte_pictures
from benchmarks.rig.character_rounds import Case
from benchmarks.rig.kept_curves import TASKS, Curve, Kept, curves
from benchmarks.size import OUTPUT, curves_folder, sized
from gradmarket.market.step import GradientStep, Schedule

PREFIX = "bytes_baseline."
KEPT, RESULT = sized(Path("build"), OUTPUT) / "bytes_baselines.jsonl", curves_folder() / "bytes_baselines.json"


def measure() -> Iterator[Figure]:
    torch.set_num_threads(1)
    kept, ours = Kept(KEPT), {curve.seed: curve for curve in curves(byte_pictures.RESULT) if curve.name == "ours"}
    trained = {codec: [scene.measure_curve(kept, _build_case(codec), seed) for seed in scene.SEEDS] for codec in CODECS}
    for name, (codec, count_bytes) in BASELINES.items():
        ratios = [count_bytes(curve) / _until(ours[curve.seed], curve.final) for curve in trained[codec]]
        losses = ", ".join(f"{curve.final:.3f}" for curve in trained[codec])
        note = f"seeds: {', '.join(f'{ratio:.1f}' for ratio in ratios)}; nats {losses}"
        yield Figure(f"bytes_baseline.{name}", min(ratios), "times", "data-parallel", min(ratios), note=note)
    kept.end(RESULT)


def _build_case(codec: str) -> Case:
    settings, schedule = {"adamw": scene.MUON.settings["adamw"]}, Schedule(name="cosine", warmup=sized(20, 1))
    step = GradientStep(rows=TASKS * scene.ROWS)  # the rows of all tasks as those of one, as in `bytes`
    steps, muon = scene.STEPS, scene.MUON
    return Case(f"parallel_{codec}", step, steps, muon.name, muon.lr, settings, 1, codec, codec, schedule)


def _until(ours: Curve, loss: float) -> float:
    rounds = ours.reached(loss)
    return ours.total(rounds) if rounds else float("inf")


def _count_all(curve: Curve) -> float:
    return curve.total(curve.rounds)


def _count_ring_bytes(curve: Curve) -> float:
    """Returns the bytes that all workers send and receive."""
    return curve.rounds * TASKS * 2 * (2 * (TASKS - 1) / TASKS) * (curve.first / 2)


CODECS: Final = ("bf16", "two_bit")
BASELINES: Final[Mapping[str, tuple[str, Callable[[Curve], float]]]] = {
    "bf16": ("bf16", _count_all),
    "two_bit": ("two_bit", _count_all),
    "ring": ("bf16", _count_ring_bytes),
}
