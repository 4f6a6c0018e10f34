"""The child that traces a market's steps too: for a side of a dispute, and for its referee.

tracing_runner.py runs it as `python -I -m gradmarket.runner.features.disputes.tracing_child <configuration as JSON>`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload_layout import build_layout
from gradmarket.market.step import GradientStep, LocalStep
from gradmarket.runner.features.disputes import HASH_BYTES, INPUT, ROWS
from gradmarket.runner.features.disputes.traced.course import PlanCourse, judge_results, redo_operation
from gradmarket.runner.features.disputes.traced.operations import Operations
from gradmarket.runner.features.disputes.traced.plan import Slot, TaskPlan, TracedTask
from gradmarket.runner.features.disputes.traced.run import trace_task
from gradmarket.runner.step_child import StepHandler, read_step
from gradmarket.runner.task_cost import compute_task_cost
from graphdoc.document.meter import Limits
from graphdoc.errors import Refused
from graphdoc.passes import Arrays
from graphdoc.runner.child import serve_by
from graphdoc.runner.serving import Configuration, Request

LONGER: Final = 4
"""How many times a step's time its trace may take."""


@dataclass(frozen=True)
class _SentTask:
    """The sent data of a task (TaskSources): `numbers` are those of the batch's rows in their partition."""

    numbers: Sequence[int]
    arrays: Mapping[str, np.ndarray]
    batch: Mapping[str, np.ndarray]

    @cached_property
    def _places(self) -> Mapping[int, int]:
        return {number: place for place, number in enumerate(self.numbers)}

    def rows(self) -> Sequence[int]:
        return self.numbers

    def state(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def gather(self, rows: Sequence[int]) -> Arrays:
        if not all(row in self._places for row in rows):
            raise Refused("the task draws no such row")
        places = [self._places[row] for row in rows]
        return {name: np.ascontiguousarray(array[places]) for name, array in self.batch.items()}


class TracingHandler(StepHandler):
    """Handles `trace`, `outline`, `describe`, `redo` and `judge` too."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self._planned: tuple[tuple[Any, ...], TaskPlan] | None = None
        self.answers.update(trace=self._trace, outline=self._outline_part)
        self.answers.update(describe=self._describe_operation, redo=self._redo, judge=self._judge)

    def _plan(self, request: Request) -> TaskPlan:
        key = request["digest"], request["codec"], request["seed"], repr(request["step"])
        if self._planned is None or self._planned[0] != key:
            program, step = self.programs[request["digest"]], read_step(request["step"])
            if not isinstance(step, GradientStep | LocalStep):
                raise Refused("a part of a task is not traced")
            layout, codec = build_layout(program.document), load_codec(request["codec"])
            self._planned = key, TaskPlan(TracedTask(program, layout, codec, step, bytes.fromhex(request["seed"])))
        return self._planned[1]

    def _trace(self, request: Request) -> list[int]:
        """Writes checkpoints and leaves, with how many digests each has, the payload's root and the wanted values.

        Returns the lengths.
        """
        program, step = self.programs[request["digest"]], read_step(request["step"])
        operations, wanted = self._prepare(request), [Slot(*pair) for pair in request["wanted"]]
        bounded = self.admit(program, self.views(request["batch"]), step.pass_sizes, Limits(*request["limits"]), True)
        cost = compute_task_cost(program.document, bounded, step)
        most = replace(cost, operations=LONGER * cost.operations, memory=self.configuration.memory_bytes)
        with self.allowed(program, most, LONGER * step.passes):
            trace = trace_task(operations, wanted, detailed=request["detailed"])
        parts = (
            *_join_leaves(trace.checkpoints),
            *_join_leaves(trace.leaves),
            trace.root,
            *(trace.values[slot] for slot in wanted),
        )
        self.arena.write_bytes(parts)
        return [len(part) for part in parts]

    def _outline_part(self, request: Request) -> dict[str, int]:
        course, part = PlanCourse(self._plan(request)), request["part"]
        first = course.number(part, 0)
        return {"parts": course.parts, "first": first, "count": course.count(part), "lasting": course.lasting(part)}

    def _describe_operation(self, request: Request) -> dict[str, Any]:
        """Returns an operation of a part, and where its values are in the whole plan."""
        course = PlanCourse(self._plan(request))
        operation = course.describe(request["part"], request["leaf"])
        number = course.number(request["part"], request["leaf"])
        slots = () if request["leaf"] == course.count(request["part"]) - 1 else course.slots(number)
        return {**operation._asdict(), "slots": [[slot.leaf, slot.place] for slot in slots]}

    def _redo(self, request: Request) -> str:
        with self._allow_operation(request) as (operations, inputs):
            return redo_operation(operations, request["leaf"], inputs).hex()

    def _judge(self, request: Request) -> bool | None:
        with self._allow_operation(request) as (operations, shown):
            inputs, results = shown[: request["reads"]], shown[request["reads"] :]
            return judge_results(operations, request["leaf"], inputs, results)

    @contextmanager
    def _allow_operation(self, request: Request) -> Iterator[tuple[Operations, list[bytes]]]:
        """Yields the task's operations and the inputs that were sent, within a step's limits."""
        program, step = self.programs[request["digest"]], read_step(request["step"])
        sent = self.views(request["state"])
        inputs = [sent[f"{INPUT}{number}"].tobytes() for number in range(request["inputs"])]
        bounded = self.admit(program, self.views(request["batch"]), step.pass_sizes, Limits(*request["limits"]), True)
        cost = compute_task_cost(program.document, bounded, step)
        with self.allowed(program, replace(cost, memory=self.configuration.memory_bytes), step.passes):
            yield self._prepare(request), inputs

    def _prepare(self, request: Request) -> Operations:
        sent = self.views(request["state"])
        task = _SentTask([int(row) for row in sent[ROWS]], sent, self.views(request["batch"]))
        return Operations(self._plan(request), task, self.configuration.device)


def _join_leaves(leaves: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Returns leaves as one, and how many digests each has."""
    return b"".join(leaves), np.array([len(leaf) // HASH_BYTES for leaf in leaves], "<u4").tobytes()


def serve() -> None:
    """Serves traces, steps and documents."""
    serve_by(TracingHandler)


if __name__ == "__main__":
    serve()
