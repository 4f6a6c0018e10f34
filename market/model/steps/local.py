"""Local steps (DiLoCo, Douillard et al. 2023, https://arxiv.org/abs/2311.08105, algorithm 1, lines 4 to 9).

p_0 <- the round's parameters;  memory <- that of a fresh inner optimizer
p_h, memory <- inner(p_h-1, the mean gradient at p_h-1 over the h-th rows, memory, rate_h)      for h = 1 … H
pseudo-gradient <- p_0 - p_H;  loss <- mean of the H losses

The paper's workers keep their inner optimizer between rounds. Ours are strangers who come and go, so its memory
starts fresh each round, and `rewarm` keeps the first steps short. It is the requester's own optimizer code, numpy on
the CPU: its bits do not depend on the machine. On a GPU the parameters are therefore copied to the host and back in
each inner step.
"""

from typing import Any

import numpy as np

from gradmarket.market.gradient.clipping import clip
from gradmarket.market.gradient.optimizers import optimizer
from gradmarket.market.gradient.schedules import rate
from gradmarket.market.model.document.interpret import Program
from gradmarket.market.model.passes import Arrays, Outcome, mean_gradient, numbered, numpy_of, tensors
from gradmarket.market.step import LocalStep


def compute(program: Program, state: Arrays, batch: Arrays, seed: bytes, step: LocalStep, device: str) -> Outcome:
    names = [entry.name for entry in program.document.trainable]
    before = {name: np.asarray(state[name], order="C") for name in names}
    inner = _Inner(step, before)
    inputs, losses = tensors(state, device), []
    for number in range(step.steps):
        rows = slice(number * step.rows, (number + 1) * step.rows)
        part = {name: array[rows] for name, array in batch.items()}
        answer, buffers = mean_gradient(program, inputs, part, numbered(b"inner", number, seed), step, device)
        gradient = numpy_of(answer)
        losses.append(float(gradient.pop("loss")))
        inputs |= tensors(inner.move(gradient, number), device) | buffers
    change = {name: before[name] - inner.parameters[name] for name in names}
    updates = {name: inputs[name] for name in program.document.updates}
    return {"loss": np.array(sum(losses) / step.steps, np.float32), **change, **numpy_of(updates)}


class _Inner:
    """A task's own optimizer and the parameters that it updates."""

    def __init__(self, step: LocalStep, parameters: dict[str, Any]) -> None:
        self.parameters = parameters
        self._step, self._chosen = step, step.optimizer
        self._rule = optimizer(self._chosen.name)
        self._settings = self._rule.Settings(**self._chosen.settings)
        self._memory = self._rule.start(parameters, self._settings)

    def move(self, gradient: dict[str, Any], number: int) -> dict[str, Any]:
        """Returns the parameters after inner step `number` of the task, counted from 0."""
        limit, schedule = self._chosen.clip, self._chosen.schedule
        clipped = gradient if limit is None else clip(gradient, limit)
        first, total = self._step.place
        lr = rate(schedule.name, self._chosen.lr, first + number, total, schedule.warmup)
        lr = rate("constant", lr, number, self._step.steps, self._step.rewarm)
        self.parameters, self._memory = self._rule.step(self.parameters, clipped, self._memory, lr, self._settings)
        return self.parameters
