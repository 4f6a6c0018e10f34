"""Computes the results of each operation of a task's plan: the task's own functions, on one operation's inputs.

They have the bits of `compute_step` and `encode_payload`; tests hold them to it for every model, optimizer and codec.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import torch
from blake3 import blake3

from gradmarket.market.errors import Refused
from gradmarket.market.gradient.norm import compute_clip_factor, compute_norm
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.gradient.payload import pack_shard
from gradmarket.market.step import LocalStep
from gradmarket.runner.device_arrays import compute_device_norm, download_arrays, upload_arrays
from gradmarket.runner.features.disputes.traced.plan import Source, TaskOperation, TaskPlan
from gradmarket.runner.steps.local import compute_inner_rate, pull_to_first, runs_on_device
from graphdoc.passes import Arrays, build_tensors
from graphdoc.tracing.nodes import run_backward, run_forward
from graphdoc.tracing.passes import CallStep, CounterValue, Root
from graphdoc.tracing.values import Traced, Value


class TaskSources(Protocol):
    """The data of a task that anyone can fetch. Arrays are in C order."""

    def rows(self) -> Sequence[int]:
        """Returns the task's rows, drawn anew."""

    def state(self, name: str) -> np.ndarray:
        """Returns a parameter, buffer or constant of the round."""

    def gather(self, rows: Sequence[int]) -> Arrays:
        """Returns these rows of the task's partition. Raises Refused where it has no such row."""


@dataclass(frozen=True)
class Operations:
    """Computes operations of one task on one device."""

    plan: TaskPlan
    published: TaskSources
    device: str = "cpu"

    def compute(self, operation: TaskOperation, values: Sequence[Value]) -> list[Value]:
        """Returns the results for the values of `operation.reads`. Raises Refused, OutOfMemory."""
        try:
            return _KINDS[operation.kind](self, operation.about, values)
        except (AttributeError, TypeError, ValueError, LookupError, ArithmeticError, RuntimeError) as error:
            raise Refused(f"{operation.name} cannot be computed from what it was given: {str(error)[:150]}") from None

    @property
    def _local(self) -> LocalStep:
        return self.plan.local

    def _draw(self, _about: Any, _values: Sequence[Value]) -> list[Value]:
        return [Traced(np.array(self.published.rows(), np.int64))]

    def _read_state(self, name: str, _values: Sequence[Value]) -> list[Value]:
        return [Traced(self.published.state(name))]

    def _gather(self, part: slice, values: Sequence[Value]) -> list[Value]:
        rows = [int(row) for row in _needed(values[0]).array()[part]]
        tensors = build_tensors(self.published.gather(rows), self.device)
        return [Traced(tensors[entry.name]) for entry in self.plan.task.program.document.of("data")]

    def _call(self, about: tuple[CallStep, bytes], values: Sequence[Value]) -> list[Value]:
        step, seed = about
        arguments = len(step.call.reads)
        with self.plan.task.program.computing(torch.device(self.device).type):
            ran, results = run_forward(step.call, [_needed(each) for each in values[:arguments]], seed, self.device)
            if step.way == "forward":
                return results
            gradients = arguments + len(step.call.makes)
            return run_backward(ran, values[arguments:gradients], values[gradients:])

    def _share(self, _about: Any, values: Sequence[Value]) -> list[Value]:
        """Returns (the first weight that is not 0, the sum of weights, this microbatch's share) in float64."""
        first, whole = (0.0, 0.0) if values[0] is None else (float(each) for each in values[0].array()[:2])
        weight = float(_needed(values[1]).tensor(self.device))
        if not (math.isfinite(weight) and weight >= 0.0):
            raise Refused(f"the weight of some rows is {weight:g}: a weight is 0 or more")
        first = first or weight
        return [Traced(np.array([first, whole + weight, weight / first if weight else 0.0]))]

    def _add(self, about: tuple[str, float], values: Sequence[Value]) -> list[Value]:
        name, share = about
        before, given, shares = values
        if given is None:
            shape = next(entry.shape for entry in self.plan.task.program.document.trainable if entry.name == name)
            given = Traced(torch.zeros(shape, device=self.device))
        counts = share if shares is None else float(shares.array()[2])
        tensor = given.tensor(self.device)
        part = torch.zeros_like(tensor) if counts == 0.0 else tensor if counts == 1.0 else tensor * counts
        return [Traced(part if before is None else before.tensor(self.device) + part)]

    def _divide(self, _about: Any, values: Sequence[Value]) -> list[Value]:
        total, shares = _needed(values[0]).tensor(self.device), _needed(values[1]).array()
        whole = float(shares[1]) / float(shares[0]) if shares[0] else 1.0
        return [Traced(total if whole == 1.0 else total / whole)]

    def _weigh(self, _about: Any, values: Sequence[Value]) -> list[Value]:
        return [Traced(np.array(_needed(values[0]).array()[1], np.float32))]

    def _measure_norm(self, _about: Any, values: Sequence[Value]) -> list[Value]:
        names = [entry.name for entry in self.plan.task.program.document.trainable]
        arrays = [_needed(value).array() for value in values]
        gradient, parameters, first = (
            dict(zip(names, arrays[start : start + len(names)], strict=False))
            for start in (0, len(names), 2 * len(names))
        )
        if runs_on_device(self._local, self.device):
            moved, here, start = (upload_arrays(each, self.device) for each in (gradient, parameters, first))
            norm = compute_device_norm(pull_to_first(moved, here, start, self._local.proximal))
        else:
            pulled = pull_to_first(gradient, parameters, first, self._local.proximal)
            norm = compute_norm(array.reshape(-1) for array in pulled.values())
        factor = compute_clip_factor(norm, float(self._local.optimizer.clip or 0.0))
        return [None if factor is None else Traced(np.array(factor))]

    def _move(self, about: tuple[str, int], values: Sequence[Value]) -> list[Value]:
        (name, number), (parameter, given, factor, first, *held) = about, values
        chosen, keys = self._local.optimizer, self.plan.memory_keys(name)
        rule = load_optimizer(chosen.name)
        settings = rule.Settings(**chosen.settings)
        own, gradient = {name: _needed(parameter).array()}, {name: _needed(given).array()}
        memory = (
            rule.start(own, settings)
            if number == 0
            else {key: _needed(value).array() for key, value in zip(keys, held, strict=True)}
        )
        start = {} if first is None else {name: first.array()}
        on_device = runs_on_device(self._local, self.device)
        if on_device:
            own, gradient, memory, start = (upload_arrays(each, self.device) for each in (own, gradient, memory, start))
        if start:
            gradient = pull_to_first(gradient, own, start, self._local.proximal)
        if factor is not None:
            gradient = {name: gradient[name] * np.float32(factor.array())}
        moved, kept = rule.step(own, gradient, memory, compute_inner_rate(self._local, number), settings)
        if on_device:
            moved, kept = download_arrays(moved), download_arrays(kept)
        return [Traced(moved[name]), *(Traced(kept[key]) for key in keys)]

    def _tally(self, _about: Any, values: Sequence[Value]) -> list[Value]:
        """Returns (the sum of the losses by weight, the sum of the weights) in float64."""
        before, loss, weight = values
        total, whole = (0.0, 0.0) if before is None else (float(each) for each in before.array())
        counts = 1.0 if weight is None else float(weight.array())
        return [Traced(np.array([total + float(_needed(loss).array()) * counts, whole + counts]))]

    def _change(self, _about: Any, values: Sequence[Value]) -> list[Value]:
        if runs_on_device(self._local, self.device):
            before, after = (_needed(value).tensor(self.device) for value in values)
            return [Traced(before - after)]
        with np.errstate(invalid="ignore", over="ignore"):
            return [Traced(_needed(values[0]).array() - _needed(values[1]).array())]

    def _mean_loss(self, _about: Any, values: Sequence[Value]) -> list[Value]:
        total, whole = (float(each) for each in _needed(values[0]).array())
        return [Traced(np.array(total / (whole or 1.0), np.float32))]

    def _pack(self, about: tuple[int, Sequence[slice]], values: Sequence[Value]) -> list[Value]:
        task, (index, parts) = self.plan.task, about
        pieces = [_needed(value).array().reshape(-1)[part] for value, part in zip(values, parts, strict=True)]
        return [Traced(pack_shard(task.layout, np.concatenate(pieces), index, task.codec, task.seed))]

    def _seal(self, _about: Any, values: Sequence[Value]) -> list[Value]:
        *shards, weight = values
        hasher = blake3(max_threads=blake3.AUTO)
        for shard in shards:
            hasher.update(_needed(shard).data)
        if weight is not None:
            hasher.update(np.asarray(weight.array(), "<f4").tobytes())
        return [Traced(hasher.digest())]


def _needed(value: Value) -> Traced:
    if value is None:
        raise Refused("a value is missing")
    return value


_Kind = Callable[[Operations, Any, Sequence[Value]], list[Value]]
_KINDS: Final[Mapping[str, _Kind]] = {
    "rows": Operations._draw,
    "state": Operations._read_state,
    "data": Operations._gather,
    "call": Operations._call,
    "shares": Operations._share,
    "sum": Operations._add,
    "mean": Operations._divide,
    "weight": Operations._weigh,
    "clip": Operations._measure_norm,
    "move": Operations._move,
    "tally": Operations._tally,
    "change": Operations._change,
    "loss": Operations._mean_loss,
    "whole": Operations._weigh,
    "shard": Operations._pack,
    "payload": Operations._seal,
}


def read_constant(source: Source) -> Value:
    """Returns the value of a source that is no operation's result."""
    match source:
        case CounterValue(value):
            return Traced(value)
        case Root():
            return Traced(torch.ones(()))
    return None
