"""A small task with all that anybody can fetch of it, for tests of traces and disputes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import nn

from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload import encode_payload
from gradmarket.market.gradient.payload_layout import build_layout
from gradmarket.market.sampling import draw_shuffled_rows
from gradmarket.market.step import GradientStep, LocalStep, Step
from gradmarket.runner.architectures import cnn
from gradmarket.runner.features.disputes.traced.operations import Operations, read_constant
from gradmarket.runner.features.disputes.traced.plan import Slot, TaskPlan, TracedTask
from gradmarket.runner.features.disputes.traced.run import TaskTrace, trace_task
from gradmarket.runner.steps import compute_step
from graphdoc.document.interpret import Program
from graphdoc.document.publish import Loss, compute_classification_loss, publish_module
from graphdoc.document.schema import parse_document
from graphdoc.figures import Published
from graphdoc.tracing.values import Traced, Value, compute_digest, locate_value, unpack_value

SEED = bytes(range(32))
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class InMemory:
    """The publication of a task, from memory."""

    drawn: Sequence[int]
    parameters: Arrays
    partition: Arrays

    def rows(self) -> Sequence[int]:
        return self.drawn

    def state(self, name: str) -> np.ndarray:
        return self.parameters[name]

    def gather(self, rows: Sequence[int]) -> Arrays:
        return {name: np.ascontiguousarray(array[list(rows)]) for name, array in self.partition.items()}


@dataclass(frozen=True)
class SmallTask:
    """A model, its rows, and a step."""

    model: Published
    partition: Arrays
    step: GradientStep | LocalStep
    codec: str = "fp32"

    @cached_property
    def published(self) -> InMemory:
        total = len(next(iter(self.partition.values())))
        rows = draw_shuffled_rows(b"job", 0, 1, total, self.step.rows, self.step.moves)
        return InMemory(rows, self.model.parameters, self.partition)

    @cached_property
    def operations(self) -> Operations:
        program = Program(parse_document(self.model.document))
        layout = build_layout(program.document)
        task = TracedTask(program, layout, load_codec(self.codec), self.step, SEED)
        return Operations(TaskPlan(task), self.published)

    @cached_property
    def payload(self) -> bytes:
        """A worker's answer."""
        task = self.operations.plan.task
        batch = self.published.gather(self.published.rows())
        answer = compute_step(task.program, self.model.parameters, batch, SEED, self.step)
        return bytes(encode_payload(task.layout, answer, task.codec, SEED))

    @cached_property
    def trace(self) -> TaskTrace:
        """Of every value, with its bytes."""
        return trace_task(self.operations, self.slots)

    @property
    def slots(self) -> set[Slot]:
        plan = self.operations.plan
        return {Slot(leaf, place) for leaf in range(len(plan)) for place in range(plan[leaf].results)}

    def redo(self, leaf: int, trace: TaskTrace) -> bytes:
        """Returns the leaf of one operation, recomputed from the bytes of its reads alone."""
        operation = self.operations.plan[leaf]
        values = [read_value(read, trace) for read in operation.reads]
        results = self.operations.compute(operation, values)
        return b"".join(compute_digest(locate_value(result, values)) for result in results)

    def with_step(self, **changes: Any) -> "SmallTask":
        return replace(self, step=parse_step(**(self.step.model_dump(mode="json") | changes)))


def read_value(source: Any, trace: TaskTrace) -> Value:
    if not isinstance(source, Slot):
        return read_constant(source)
    value = unpack_value(trace.values[source._replace(grad=False)])
    return value if value is None or not source.grad else Traced(value.tensor("cpu"), True, value.base)


def parse_step(**fields: Any) -> GradientStep | LocalStep:
    step: GradientStep | LocalStep = TypeAdapter(Step).validate_python(fields)
    return step


def publish(module: nn.Module, shape: tuple[int, ...], loss: Loss = compute_classification_loss) -> Published:
    return publish_module(module, loss, (torch.randn(4, *shape), torch.arange(4) % 3))


def small_cnn(step: GradientStep | LocalStep, codec: str = "fp32") -> SmallTask:
    """With BatchNorm and dropout: buffers move, and seeds matter."""
    torch.manual_seed(1)
    model = publish(cnn.build({"channels": [4], "dropout": 0.25}, (1, 4, 4), 3), (1, 4, 4))
    draw = np.random.default_rng(7)
    rows: Arrays = {"x": draw.standard_normal((40, 1, 4, 4)).astype(np.float32), "y": draw.integers(0, 3, 40)}
    return SmallTask(model, rows, step, codec)
