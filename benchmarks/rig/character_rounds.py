"""A small character model trained by the market's own rules, on one machine in place of all workers."""

import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from examples.character import LENGTH, sources, windows
from gradmarket.market import sampling
from gradmarket.market.gradient.aggregators import configure_aggregator
from gradmarket.market.gradient.arithmetic import compute_learning_rate
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.one_step import OptimizerStep
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.gradient.payload import encode_payload
from gradmarket.market.gradient.payload_layout import Layout, build_layout
from gradmarket.market.gradient.round_merge import MergedAnswer, Recipe
from gradmarket.market.gradient.round_update import ModelState, build_model_state
from gradmarket.market.job_parts import Downlink, FirstUpdates
from gradmarket.market.rules import overlap
from gradmarket.market.rules.secrets import task_seed
from gradmarket.market.step import Schedule, Step
from gradmarket.runner.architectures import gpt
from gradmarket.runner.steps import compute_step
from graphdoc.document.interpret import Program
from graphdoc.document.publish import publish_module
from graphdoc.document.schema import parse_document
from graphdoc.figures import Published
from graphdoc.passes import evaluate
from tests.kit.whole_merge import apply_merged_answer, merge_answers

HELD_OUT = 128
"""Rows: the first ones of a text."""
CONSTANT = Schedule()


def library() -> str:
    """The ASCII characters of the modules at the top of Python's library: 4.7 MB."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    return (
        "".join(path.read_text(encoding="utf-8", errors="ignore") for path in files).encode("ascii", "ignore").decode()
    )


@dataclass(frozen=True)
class Case:
    """`tasks`: of a round. `downlink`: the codec of published updates; "" where parameters are published whole.

    `schedule`: of `lr`, over the rounds. `first`: as in a job's downlink.
    """

    name: str
    step: Step
    rounds: int
    optimizer: str
    lr: float
    settings: dict[str, Any]
    tasks: int = 2
    uplink: str = "fp32"
    downlink: str = ""
    schedule: Schedule = CONSTANT
    first: FirstUpdates | None = None


@dataclass(frozen=True)
class Scene:
    """A model of `blocks`, and its text in rows of `length`; `held_out` are the rows that it is measured on."""

    blocks: dict[str, int]
    text: Callable[[], str]
    held_out: slice
    length: int = LENGTH


def narrow(depth: int) -> dict[str, int]:
    return {"depth": depth, "width": 64, "heads": 4}


SMALL = Scene(narrow(2), sources, slice(HELD_OUT))
"""110,000 parameters on 44 kB, the text of examples/character.py."""


@lru_cache(2)
def _cut(text: Callable[[], str], length: int) -> tuple[np.ndarray, np.ndarray, int]:
    return windows(text(), length)


@lru_cache(4)
def _publish(blocks: tuple[tuple[str, int], ...], text: Callable[[], str], length: int, seed: int) -> Published:
    """Traces the model and draws its parameters; cases of one scene and seed begin with the same."""
    x, y, characters = _cut(text, length)
    torch.manual_seed(seed)
    module = gpt.build(dict(blocks), x.shape[1:], characters)
    return publish_module(module, gpt.OBJECTIVE, (torch.from_numpy(x[:2]), torch.from_numpy(y[:2])))


class Training:
    """Computes the answers of honest workers; merges are the service's."""

    def __init__(self, case: Case, seed: int, scene: Scene = SMALL) -> None:
        x, y, self.characters = _cut(scene.text, scene.length)
        published = _publish(tuple(scene.blocks.items()), scene.text, scene.length, seed)
        self._case, self._seed = case, seed
        self._program, self._evaluation = (
            Program(parse_document(published.document)),
            Program(parse_document(published.evaluation)),
        )
        self._first = published.parameters
        self._held_out = {"x": x[scene.held_out], "y": y[scene.held_out]}
        self._train = {name: np.delete(rows, np.r_[scene.held_out], axis=0) for name, rows in (("x", x), ("y", y))}
        rule, settings = configure_aggregator("mean", {}, case.tasks, case.tasks)
        self._recipe = Recipe(
            build_layout(self._program.document), load_codec(case.uplink), rule, settings, 1e3, case.tasks
        )

    @property
    def guess(self) -> float:
        """The loss of a guess, in nats."""
        return float(np.log(self.characters))

    @property
    def layout(self) -> Layout:
        return self._recipe.layout

    def loss(self, delay: int = 0) -> float:
        """Returns the published parameters' held-out loss after all rounds, in nats; `delay` is the job's overlap."""
        return deque(self.losses(self._case.rounds, delay), 1)[0][1]

    def losses(self, every: int, delay: int = 0) -> Iterator[tuple[int, float]]:
        """Yields how many rounds are done, and that loss: after each `every` rounds, and after the last."""
        for done, state in self.states(delay):
            if done % every == 0 or done == self._case.rounds:
                yield done, self.measured(state)

    def measured(self, state: ModelState) -> float:
        """Returns the held-out loss, in nats."""
        return evaluate(self._evaluation, state.tensors, self._held_out).loss

    def states(
        self, delay: int = 0, done: int = 0, state: ModelState | None = None
    ) -> Iterator[tuple[int, ModelState]]:
        """Yields how many rounds are done, and the model after them: from a `state` after `done` of them on."""
        case, rule = self._case, load_optimizer(self._case.optimizer)
        downlink = Downlink(codec=case.downlink, first=case.first) if case.downlink else None
        settings = rule.Settings(**case.settings)
        moves = [
            OptimizerStep(rule, settings, downlink=load_codec(downlink.codec_of(number)) if downlink else None)
            for number in range(case.rounds)
        ]
        states = [state or build_model_state(self.layout, self._first, moves[0])]
        for number, move in islice(enumerate(moves), done, None):
            start = states[overlap.starts_after(number, delay) - number].tensors
            merged = merge_answers(self._recipe, [self._answer(start, number, task) for task in range(case.tasks)])
            lr = compute_learning_rate(case.schedule.name, case.lr, number, case.rounds, case.schedule.warmup)
            states = [*states[-delay or len(states) :], apply_merged_answer(self.layout, states[-1], merged, move, lr)]
            yield number + 1, states[-1]

    def _answer(self, start: Arrays, number: int, task: int) -> MergedAnswer:
        step, seed = self._case.step.in_round(number, self._case.rounds), task_seed(self._seed, number, task)
        own, total = self._seed.to_bytes(8, "big"), len(self._train["y"])
        chosen = sampling.draw_shuffled_rows(own, number, task, total, step.rows, step.moves)
        tensors = compute_step(
            self._program, start, {name: data[chosen] for name, data in self._train.items()}, seed, step
        )
        return MergedAnswer(encode_payload(self._recipe.layout, tensors, self._recipe.codec, seed), seed)
