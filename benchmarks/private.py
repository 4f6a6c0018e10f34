"""Accuracy of ten holders of unevenly split digits after 30 rounds, beside Flower's FedAvg.

Split, first parameters, local steps and rounds are those of examples/holders.py in both. Flower's clients are a
perceptron in numpy, whose answers weigh as their rows; here a row cap bounds the weight. Noise is that of
features.private.holder_budget, of eight seeds.
"""

import json
import math
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import mean
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import nn

import benchmarks.peers
from benchmarks.figure import Figure
from benchmarks.rig.peers import ENVIRONMENTS, LATEST_S
from benchmarks.size import sized
from examples.holders import LOCAL, Rows, digits
from gradmarket.market.features.private.holder_budget import compute_epsilon
from gradmarket.market.features.private.holder_rows import compute_row_scales, count_weighed_rows
from gradmarket.market.gradient import inspection
from gradmarket.market.gradient.aggregators import configure_aggregator
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.noise import Noise
from gradmarket.market.gradient.one_step import OptimizerStep
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.gradient.payload_layout import Layout, build_layout
from gradmarket.market.gradient.round_merge import MergedAnswer, Recipe
from gradmarket.market.gradient.round_update import build_model_state
from gradmarket.market.sampling import draw_shuffled_rows
from gradmarket.market.step import LocalStep
from gradmarket.runner.steps import compute_step
from graphdoc.document.interpret import Program
from graphdoc.document.schema import parse_document
from graphdoc.encoding import Bytes
from graphdoc.export import export_module
from graphdoc.figures import Metrics
from graphdoc.passes import evaluate
from tests.kit.whole_merge import apply_merged_answer, merge_answers

PREFIX = "private."
ROUNDS, SEEDS, BOUND, CAP = sized(30, 2), range(sized(2, 1)), 2.0, 200
NOISED: Final = range(sized(8, 1))
"""Seeds of model and noise: with multiplier 1 one of them differs from another by a tenth."""
NOISES: Final = {"noise_0.1": (0.1, 1.0), "noise_1": (1.0, 1.0)}
"""By name: the noise multiplier, and the norm bound that it is of."""


class Peer(NamedTuple):
    """`seconds`: from the end of the first round to the end of the last."""

    accuracy: float
    seconds: float


class Deployed(NamedTuple):
    """`seconds`: of each round after the first."""

    accuracy: float
    seconds: list[float]


class Holders:
    """The example's split, and its model with first parameters of a seed."""

    def __init__(self, seed: int, local: Mapping[str, Any] = LOCAL) -> None:
        self.step = LocalStep.model_validate(local)
        self.theirs, (x, y) = digits()
        self.own = {"x": x, "y": y}
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        made = export_module(module, nn.functional.cross_entropy, self.own, "fp32")
        self.first, self.seed = made.parameters, seed
        self._program, self._evaluation = (
            Program(parse_document(made.document)),
            Program(parse_document(made.evaluation)),
        )

    def accuracy(self, multiplier: float = 0.0, bound: float = BOUND) -> float:
        """Returns the accuracy after all rounds, each of all holders."""
        count, own_layout = len(self.theirs), self.layout
        rule, settings = configure_aggregator("mean", {}, count, count)
        sgd = load_optimizer("sgd")
        move = OptimizerStep(sgd, sgd.Settings())
        state = build_model_state(own_layout, self.first, move)
        weights = [count_weighed_rows(len(y), 1, 1 if multiplier else CAP) for _, y in self.theirs]
        for number in range(ROUNDS):
            noise = Noise(multiplier * bound, (1000 * self.seed + number).to_bytes(32, "big")) if multiplier else None
            recipe = Recipe(own_layout, load_codec("fp32"), rule, settings, bound, count, noise)
            payloads = [self.packed(self.answer(state.tensors, number, one), bound) for one in range(count)]
            scales = compute_row_scales(weights)
            answers = [MergedAnswer(data, b"", scale) for data, scale in zip(payloads, scales, strict=True)]
            state = apply_merged_answer(own_layout, state, merge_answers(recipe, answers), move, 1.0)
        return self.measured(state.tensors, self.own).values["accuracy"]

    @property
    def layout(self) -> Layout:
        return build_layout(self._program.document)

    def measured(self, parameters: Arrays, rows: Arrays) -> Metrics:
        return evaluate(self._evaluation, parameters, rows)

    def answer(self, start: Arrays, number: int, holder: int, own: Rows | None = None) -> dict[str, np.ndarray]:
        """Returns the change by local steps on a holder's rows, or on `own` rows."""
        x, y = own or self.theirs[holder]
        drawn = self._drawn(number, holder, len(y))
        batch = {"x": np.ascontiguousarray(x[drawn]), "y": np.ascontiguousarray(y[drawn])}
        return compute_step(self._program, start, batch, bytes((self.seed, number, holder)).ljust(32), self.step)

    def _drawn(self, number: int, holder: int, total: int) -> list[int]:
        """Returns the rows of a task; in epochs where they are noised one by one (private.row_uses)."""
        seed, moves, count = holder.to_bytes(8, "big"), self.step.moves, self.step.rows
        if not self.step.by_row:
            return draw_shuffled_rows(seed, number, self.seed, total, count, moves)
        places = (divmod(step, total // count) for step in range(number * moves, (number + 1) * moves))
        return [row for epoch, slot in places for row in draw_shuffled_rows(seed, epoch, slot, total, count)]

    def packed(self, answer: Arrays, bound: float = BOUND) -> Bytes:
        return inspection.encode_bounded_payload(self.layout, answer, load_codec("fp32"), b"", (), bound)

    def flowers(self) -> Peer | None:
        """Returns the results of Flower's FedAvg in as many rounds; None where it is not installed."""
        own = {"seed": self.seed, "holders": len(self.theirs)}
        measured = self._by_flower("flower_holders.py", lambda held, options: [held, json.dumps(options | own)])
        return None if measured is None else Peer(*map(float, measured[-1].split()))

    def flowers_deployed(self, rounds: int) -> Deployed | None:
        """Returns the same of Flower as deployed, in `rounds` rounds after the first."""
        own = {"workers": len(self.theirs), "rounds": 1 + rounds}
        measured = self._by_flower(
            "flower_deployed.py", lambda held, options: [json.dumps(options | own | {"held": held})]
        )
        return None if measured is None else Deployed(float(measured[-2]), json.loads(measured[-1]))

    def _by_flower(self, file: str, arguments: Callable[[str, dict[str, Any]], list[str]]) -> list[str] | None:
        """Returns the lines that a file of benchmarks.peers prints; None where Flower is not installed."""
        python = ENVIRONMENTS / "flower" / "bin" / "python"
        if not python.exists():
            return None
        options = {"rounds": ROUNDS, "rows": self.step.rows, "steps": self.step.steps, "lr": self.step.optimizer.lr}
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "holders.npz"
            parts = {f"x{number}": x for number, (x, _) in enumerate(self.theirs)}
            parts |= {f"y{number}": y for number, (_, y) in enumerate(self.theirs)}
            parts |= {"own_x": self.own["x"], "own_y": self.own["y"], **self.first}
            with place.open("wb") as written:
                np.savez(written, allow_pickle=False, **parts)
            command = [str(python), str(Path(benchmarks.peers.__path__[0]) / file), *arguments(str(place), options)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=LATEST_S, check=False)
        if done.returncode or not done.stdout.strip():
            raise RuntimeError(f"Flower failed: {done.stderr[-500:]}")
        return done.stdout.strip().splitlines()


def measure() -> Iterator[Figure]:
    scenes = [Holders(seed) for seed in SEEDS]
    ours, flowers = [scene.accuracy() for scene in scenes], [scene.flowers() for scene in scenes]
    theirs = [found.accuracy for found in flowers if found is not None]
    note = f"seeds: {', '.join(f'{one:.3f}' for one in ours)}"
    if theirs:
        note += f"; Flower {mean(theirs):.3f}: {', '.join(f'{one:.3f}' for one in theirs)}"
        behind = 100 * (mean(theirs) - mean(ours))
        yield Figure(f"{PREFIX}behind_flower", behind, "points", "Flower's FedAvg", None, "<= 1")
    yield Figure(f"{PREFIX}accuracy", mean(ours), "of the requester's rows", note=note)
    for name, (multiplier, bound) in NOISES.items():
        noised = [Holders(seed).accuracy(multiplier, bound) for seed in NOISED]
        note = f"seeds: {', '.join(f'{one:.3f}' for one in noised)}"
        note += f"; epsilon {compute_epsilon(multiplier, 1e-3, ROUNDS):.3g} at delta 1e-3, norm bound {bound:g}"
        deviation = multiplier * bound / len(scenes[0].theirs)
        note += f", {deviation:.3g} an element; all of it {deviation * math.sqrt(4810):.3g} long"
        yield Figure(f"{PREFIX}accuracy.{name}", mean(noised), "of the requester's rows", note=note)
