"""A small character model trained by the market's own rules, on one machine in place of all workers."""

from dataclasses import dataclass

import numpy as np
import torch

from examples.character import sources, windows
from gradmarket.market.gradient.aggregators import configured
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.codecs import Codec, codec
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
from gradmarket.market.step import Step

HELD_OUT = 128
"""Rows."""


@dataclass(frozen=True)
class Case:
    name: str
    step: Step
    rounds: int
    optimizer: str
    lr: float
    settings: dict[str, float]
    tasks: int = 2
    """Tasks of a round."""


class Training:
    """Computes what honest workers would; merges are the service's. The text is the one of examples/character.py."""

    def __init__(self, case: Case, seed: int) -> None:
        torch.manual_seed(seed)
        x, y, self.characters = windows(sources())
        module = gpt.build({"depth": 2, "width": 64, "heads": 4}, x.shape[1:], self.characters)
        published = publish(module, gpt.OBJECTIVE, (torch.from_numpy(x[:2]), torch.from_numpy(y[:2])))
        self._case, self._seed = case, seed
        self._program, self._evaluation = Program(load(published.document)), Program(load(published.evaluation))
        self._first = published.parameters
        self._train, self._held_out = (
            {"x": x[part], "y": y[part]} for part in (slice(HELD_OUT, None), slice(HELD_OUT))
        )
        rule, settings = configured("mean", {}, case.tasks, case.tasks)
        self._recipe = Recipe(layout(self._program.document), codec("fp32"), rule, settings, 1e3, case.tasks)

    @property
    def guess(self) -> float:
        """The loss of a guess, in nats."""
        return float(np.log(self.characters))

    def loss(self, delay: int = 0, downlink: Codec | None = None) -> float:
        """Returns the published parameters' held-out loss after all rounds, in nats; `delay` is the job's overlap."""
        rule = optimizer(self._case.optimizer)
        move = OptimizerStep(rule, rule.Settings(**self._case.settings), downlink=downlink)
        states = [begin(self._recipe.layout, self._first, move)]
        for number in range(self._case.rounds):
            start = states[overlap.starts_after(number, delay) - number].tensors
            merged = merge(self._recipe, [self._answer(start, number, task) for task in range(self._case.tasks)])
            states = [
                *states[-delay or len(states) :],
                apply(self._recipe.layout, states[-1], merged, move, self._case.lr),
            ]
        return evaluate(self._evaluation, states[-1].tensors, self._held_out).loss

    def _answer(self, start: Arrays, number: int, task: int) -> MergedAnswer:
        step, seed = self._case.step.in_round(number, self._case.rounds), task_seed(self._seed, number, task)
        own, total = self._seed.to_bytes(8, "big"), len(self._train["y"])
        chosen = sampling.rows(own, number, task, total, step.rows, step.moves)
        tensors = compute(self._program, start, {name: data[chosen] for name, data in self._train.items()}, seed, step)
        return MergedAnswer(encode(self._recipe.layout, tensors, self._recipe.codec, seed), seed)
