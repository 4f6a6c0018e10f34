"""What an overlap of rounds costs in loss: a small character model, with an overlap of 0 and of 1.

It is trained by the market's own rules on one machine: same rounds, rows and settings, for gradient and local steps.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from statistics import mean

import numpy as np
import torch

from benchmarks.figure import Figure
from examples.character import sources, windows
from gradmarket.market.gradient.aggregators import configured
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.codecs import codec
from gradmarket.market.gradient.optimizers import optimizer
from gradmarket.market.gradient.payload import encode
from gradmarket.market.gradient.round_merge import MergedAnswer, Recipe, merge
from gradmarket.market.gradient.round_update import OptimizerStep, apply, begin
from gradmarket.market.model import sampling
from gradmarket.market.model.architectures import gpt
from gradmarket.market.model.compute import compute, evaluate
from gradmarket.market.model.document.interpret import Program
from gradmarket.market.model.document.publish import publish
from gradmarket.market.model.document.schema import load
from gradmarket.market.model.layout import layout
from gradmarket.market.rules import overlap
from gradmarket.market.rules.secrets import task_seed
from gradmarket.market.step import GradientStep, LocalStep, Step

PREFIX = "overlap.loss"
SEEDS = range(int(os.environ.get("SEEDS", "3")))
HELD_OUT = 128
"""Rows."""
TASKS = 2


@dataclass(frozen=True)
class Case:
    name: str
    step: Step
    rounds: int
    optimizer: str
    lr: float
    settings: dict[str, float]


INNER = {"name": "adamw", "lr": 3e-3, "clip": 1.0}
CASES = (
    Case("gradient", GradientStep(rows=32), 200, "adamw", 3e-3, {}),
    Case("local", LocalStep(kind="local", rows=32, steps=20, optimizer=INNER), 20, "nesterov", 0.7, {"momentum": 0.6}),
)


def measure() -> Iterator[Figure]:
    x, y, characters = windows(sources())
    for case in CASES:
        found: dict[int, list[float]] = {0: [], 1: []}
        for seed, delay in product(SEEDS, found):
            found[delay].append(_Training(case, seed, x, y, characters).loss(delay))
        told = f"{case.rounds} rounds; a guess {float(np.log(characters)):.3f}"
        for delay, losses in found.items():
            note = f"seeds: {', '.join(f'{loss:.3f}' for loss in losses)}; {told}"
            ratio = mean(losses) / mean(found[0])
            yield Figure(f"overlap.loss.{case.name}.{delay}", mean(losses), "nats", "no overlap", ratio, note=note)


class _Training:
    """One machine in place of all: what it computes is what honest workers would, and merges are the service's."""

    def __init__(self, case: Case, seed: int, x: np.ndarray, y: np.ndarray, characters: int) -> None:
        torch.manual_seed(seed)
        module = gpt.build({"depth": 2, "width": 64, "heads": 4}, x.shape[1:], characters)
        published = publish(module, gpt.OBJECTIVE, (torch.from_numpy(x[:2]), torch.from_numpy(y[:2])))
        self._case, self._seed = case, seed
        self._program, self._evaluation = Program(load(published.document)), Program(load(published.evaluation))
        self._first = published.parameters
        self._train, self._held_out = (
            {"x": x[part], "y": y[part]} for part in (slice(HELD_OUT, None), slice(HELD_OUT))
        )
        rule, settings = configured("mean", {}, TASKS, TASKS)
        self._recipe = Recipe(layout(self._program.document), codec("fp32"), rule, settings, 1e3, TASKS)

    def loss(self, delay: int) -> float:
        """The held-out loss after all rounds."""
        rule = optimizer(self._case.optimizer)
        move = OptimizerStep(rule, rule.Settings(**self._case.settings))
        states = [begin(self._recipe.layout, self._first, move)]
        for number in range(self._case.rounds):
            start = states[overlap.starts_after(number, delay) - number].tensors
            merged = merge(self._recipe, [self._answer(start, number, task) for task in range(TASKS)])
            states = [
                *states[-delay or len(states) :],
                apply(self._recipe.layout, states[-1], merged, move, self._case.lr),
            ]
        return evaluate(self._evaluation, states[-1].tensors, self._held_out).loss

    def _answer(self, start: Arrays, number: int, task: int) -> MergedAnswer:
        step, seed = self._case.step, task_seed(self._seed, number, task)
        own, total = self._seed.to_bytes(8, "big"), len(self._train["y"])
        chosen = sampling.rows(own, number, task, total, step.rows, step.moves)
        tensors = compute(self._program, start, {name: data[chosen] for name, data in self._train.items()}, seed, step)
        return MergedAnswer(encode(self._recipe.layout, tensors, self._recipe.codec, seed), seed)
