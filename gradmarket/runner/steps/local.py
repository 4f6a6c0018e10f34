"""Local steps (DiLoCo, Douillard et al. 2023, https://arxiv.org/abs/2311.08105, algorithm 1, lines 4 to 9).

p_0 <- the round's parameters;  memory <- that of a fresh inner optimizer
p_h, memory <- inner(p_h-1, the mean gradient at p_h-1 over the h-th rows, memory, rate_h)      for h = 1 … H
pseudo-gradient <- p_0 - p_H;  loss <- mean of the H losses, weighted by their rows where these have weights

The paper's workers keep their inner optimizer between rounds. Ours are strangers who come and go, so its memory
starts fresh each round, and `rewarm` keeps the first steps short. It is the requester's own optimizer code, numpy on
the CPU: its bits do not depend on the machine. On a card an elementwise optimizer runs there, where parameters and
memory stay for the whole task (model.device_arrays); for another one they are copied to the host and back in each inner
step. With `proximal` mu the gradient is that of FedProx's local objective (Li et al. 2020,
https://arxiv.org/abs/1812.06127, equation 2), the loss and mu / 2 |p - p_0|^2:

    g <- g + mu (p_h-1 - p_0)

before it is clipped. Corrections among the arrays of the state are added to it (control_variates). With `per_row`
the gradient of each inner step is the noised one of model.row_noise.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from gradmarket.market.gradient.arithmetic import compute_learning_rate
from gradmarket.market.gradient.norm import clip_gradient
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.gradient.payload_layout import build_layout
from gradmarket.market.step import LocalStep, WindowStep
from gradmarket.runner import drawn_rows, window_state
from gradmarket.runner.device_arrays import DeviceArray, JoinedParameters, clip_on_device
from gradmarket.runner.row_noise import compute_step_gradient, count_rows
from graphdoc.document.graph import WEIGHT
from graphdoc.document.interpret import Program
from graphdoc.passes import Arrays, Outcome, Tensors, build_tensors, derive_part_seed, numpy_of, place_state


def compute(program: Program, state: Arrays, batch: Arrays, seed: bytes, step: LocalStep, device: str) -> Tensors:
    """Returns the answer; for a WindowStep the state after it, where `state` has that before it beside the rest."""
    if isinstance(step, WindowStep):
        memory, part = window_state.memory_of(state), range(step.begins, step.ends)
        inner, after = _run_inner_steps(program, state, memory, batch, seed, step, part, device)
        return inner.build_state() | _wrap_arrays(after)
    own = build_layout(program.document)
    inner, after = _run_inner_steps(program, state, {}, batch, seed, step, range(step.steps), device)
    return inner.compute_change() | _wrap_arrays(window_state.join_task_answer(own, {}, after))


def _run_inner_steps(
    program: Program,
    state: Arrays,
    memory: dict[str, np.ndarray],
    batch: Arrays,
    seed: bytes,
    step: LocalStep,
    part: range,
    device: str,
) -> "tuple[_Inner, Outcome]":
    """Returns the optimizer after these inner steps, whose rows are the batch, with buffers, losses and weights.

    They go from `state`. `memory` is the optimizer's, that of a fresh one where it is empty. It is emptied: a step has
    the old and the new of it, and nobody holds a third.
    """
    names = [entry.name for entry in program.document.trainable]
    inputs, corrections = place_state(program, state, device), drawn_rows.select_corrections(state)
    if runs_on_device(step, device):
        inner: _Inner = _DeviceInner(step, {name: inputs[name] for name in names}, memory, corrections, device)
    else:
        ordered = {name: np.asarray(state[name], order="C") for name in names}
        inner = _Inner(step, ordered, memory, corrections, device)
    memory.clear()
    losses, weights = [], []
    for place, number in enumerate(part):
        rows = slice(place * step.room, (place + 1) * step.room)
        cut = {name: array[rows] for name, array in batch.items()}
        inner_seed, counted = derive_part_seed(b"inner", number, seed), count_rows(state, step, place)
        answer, buffers = compute_step_gradient(program, inputs, cut, inner_seed, step, device, counted)
        losses.append(answer.pop("loss"))
        weights.append(float(answer.pop(WEIGHT, 1.0)))
        inputs |= inner.move(answer, number) | buffers
    updates = numpy_of({name: inputs[name] for name in program.document.updates})
    by_step = {window_state.LOSSES: torch.stack(losses).cpu().numpy(), window_state.WEIGHTS: weights}
    states = {
        name: np.array(by_step[name], np.float32) for name in window_state.by_step(build_layout(program.document))
    }
    return inner, {**updates, **states}


class _Inner:
    """A task's own optimizer and the parameters that it updates, numpy's on the host."""

    def __init__(
        self, step: LocalStep, parameters: dict[str, Any], memory: Mapping[str, Any], added: Arrays, device: str
    ) -> None:
        self._step, self._chosen, self._device = step, step.optimizer, device
        self._rule = load_optimizer(self._chosen.name)
        self._settings = self._rule.Settings(**self._chosen.settings)
        self._hold(parameters, memory, added)
        self._start: Mapping[str, Any] = self._parameters

    def _hold(self, parameters: dict[str, Any], memory: Mapping[str, Any], added: Arrays) -> None:
        self._parameters: dict[str, Any] = parameters
        self._memory: dict[str, Any] = dict(memory) or self._rule.start(parameters, self._settings)
        self._added: Mapping[str, Any] = added

    def move(self, gradient: Tensors, number: int) -> Tensors:
        """Returns the parameters after inner step `number` of the task, counted from 0, from the gradient there."""
        return build_tensors(self._take_step(numpy_of(gradient), number, clip_gradient), self._device)

    def build_state(self) -> Tensors:
        """Returns parameters and the optimizer's memory by their names in a state."""
        memory = {window_state.MEMORY + key: array for key, array in self._memory.items()}
        return _wrap_arrays({**self._parameters, **memory})

    def compute_change(self) -> Tensors:
        """Returns the parameters from before less those of now."""
        with np.errstate(invalid="ignore", over="ignore"):
            return _wrap_arrays({name: self._start[name] - array for name, array in self._parameters.items()})

    def _take_step(self, gradient: dict[str, Any], number: int, clip: Callable[..., Any]) -> dict[str, Any]:
        if self._added:
            gradient = {name: g + self._added[name] for name, g in gradient.items()}
        gradient = pull_to_first(gradient, self._parameters, self._start, self._step.proximal)
        limit = self._chosen.clip
        clipped = gradient if limit is None else clip(gradient, limit)
        lr = compute_inner_rate(self._step, number)
        self._parameters, self._memory = self._rule.step(self._parameters, clipped, self._memory, lr, self._settings)
        return self._parameters


class _DeviceInner(_Inner):
    """The same where the parameters are computed on: nothing but losses and norms goes to the host between steps."""

    def _hold(self, parameters: dict[str, Any], memory: Mapping[str, Any], added: Arrays) -> None:
        self._joined = JoinedParameters(parameters, self._rule, self._settings)
        self._parameters = self._joined.join(parameters)
        start = self._joined.start_memory
        self._memory = self._joined.join_memory(memory, self._device) if memory else start(self._parameters)
        self._added = self._joined.join(build_tensors(added, self._device)) if added else {}

    def move(self, gradient: Tensors, number: int) -> Tensors:
        return self._joined.cut(self._take_step(self._joined.join(gradient), number, clip_on_device))

    def build_state(self) -> Tensors:
        memory = {window_state.MEMORY + key: array for key, array in self._joined.cut_memory(self._memory).items()}
        return _wrap_arrays({**self._joined.cut(self._parameters), **memory})

    def compute_change(self) -> Tensors:
        return self._joined.cut({key: self._start[key] - array for key, array in self._parameters.items()})


def _wrap_arrays(arrays: Mapping[str, Any]) -> Tensors:
    """Returns arrays as tensors where they are, on the device or on the host."""
    there = {name: array.tensor if isinstance(array, DeviceArray) else array for name, array in arrays.items()}
    return {
        name: array if isinstance(array, torch.Tensor) else torch.from_numpy(np.asarray(array))
        for name, array in there.items()
    }


def runs_on_device(step: LocalStep, device: str) -> bool:
    """Returns whether a task's optimizer runs where its gradients are: on a card, where its formula is elementwise."""
    return torch.device(device).type != "cpu" and load_optimizer(step.optimizer.name).ELEMENTWISE


def pull_to_first(
    gradient: dict[str, Any], parameters: Mapping[str, Any], first: Mapping[str, Any], proximal: float
) -> dict[str, Any]:
    """Returns the gradient of FedProx's local objective from that of the loss, at these parameters."""
    if mu := np.float32(proximal):
        return {name: g + mu * (parameters[name] - first[name]) for name, g in gradient.items()}
    return gradient


def compute_inner_rate(step: LocalStep, number: int) -> float:
    """Returns the learning rate of inner step `number` of a task, counted from 0."""
    chosen, schedule = step.optimizer, step.optimizer.schedule
    first, total = step.place
    lr = compute_learning_rate(schedule.name, chosen.lr, first + number, total, schedule.warmup)
    return compute_learning_rate("constant", lr, number, step.steps, step.rewarm)
