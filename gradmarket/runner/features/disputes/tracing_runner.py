"""The parent's side of a tracing child: commits to a task's operations, and computes one of them. No torch."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

import numpy as np
from pydantic import Field, TypeAdapter

from gradmarket.market.errors import RunnerCrashed
from gradmarket.runner.features.disputes import HASH_BYTES, INPUT, ROWS
from gradmarket.runner.market_runner import Runner, TaskInputs
from graphdoc.encoding import Bytes
from graphdoc.runner.document_runner import Arrays
from graphdoc.runner.documents import write_inputs

Answered = TypeVar("Answered")
TRACING: Final = (sys.executable, "-I", "-m", "gradmarket.runner.features.disputes.tracing_child")
Number = Annotated[int, Field(ge=0, lt=2**40)]
Place = Annotated[int, Field(ge=-1, lt=2**40)]
_LENGTHS: Final = TypeAdapter(list[Number])
_JUDGED: Final = TypeAdapter[bool | None](bool | None)
_LEAF: Final = TypeAdapter(Annotated[str, Field(pattern=r"^([0-9a-f]{64})*$")])


@dataclass(frozen=True)
class PartInfo:
    """One of a task's `parts`: the number of its `first` operation, and how many it has, its checkpoint counted."""

    parts: Number
    first: Number
    count: Number
    lasting: Number


@dataclass(frozen=True)
class OperationInfo:
    """A part's operation (disputes.referee.CourseOperation); `slots` are its values by operation of the task."""

    name: Annotated[str, Field(max_length=1000)]
    reads: tuple[Number, ...]
    values: tuple[tuple[Place, Number], ...]
    results: Number
    slots: tuple[tuple[Number, Number], ...]


@dataclass(frozen=True)
class CommittedTrace:
    """A task's checkpoints, the leaves of its detailed parts, its payload's root, and the values asked for as bytes."""

    checkpoints: Sequence[bytes]
    leaves: Sequence[bytes]
    root: bytes
    values: Sequence[bytes]


_PART: Final = TypeAdapter(PartInfo)
_INFO: Final = TypeAdapter(OperationInfo)


class TracingRunner(Runner):
    """A Runner whose children trace as well. Every method takes the current document. Raises as Runner does."""

    def turn(self, job: str, publishes: bool = False) -> None:  # noqa: ARG002  # its child publishes nothing
        with self.lock:
            self.children.turn(job, TRACING)

    def trace(
        self, inputs: TaskInputs, detailed: Sequence[int] = (), wanted: Sequence[tuple[int, int]] = ()
    ) -> CommittedTrace:
        """Computes a task operation by operation, with the leaves of the `detailed` parts.

        `wanted` are results by operation of the task and number.
        """
        with self.lock:
            request = self._write_request(inputs, {}) | {"do": "trace", "detailed": list(detailed)}
            lengths = self.ask(request | {"wanted": [list(pair) for pair in wanted]}, _LENGTHS)
            arena = self.running().arena
            if sum(lengths) > arena.size or len(lengths) != 5 + len(wanted):
                self.children.drop()
                raise RunnerCrashed("it traced more than it wrote")
            checkpoints, counted, leaves, counts, root, *values = arena.read_bytes(lengths)
        return CommittedTrace(_split_leaves(checkpoints, counted), _split_leaves(leaves, counts), root, values)

    def outline(self, inputs: TaskInputs, part: int) -> PartInfo:
        """Returns the public description of a part."""
        return self._ask_plan(inputs, {"do": "outline", "part": part}, _PART)

    def describe(self, inputs: TaskInputs, part: int, leaf: int) -> OperationInfo:
        """Returns the public description of an operation of a part."""
        return self._ask_plan(inputs, {"do": "describe", "part": part, "leaf": leaf}, _INFO)

    def _ask_plan(self, inputs: TaskInputs, request: dict[str, Any], kind: TypeAdapter[Answered]) -> Answered:
        with self.lock:
            return self.ask(_name_task(inputs) | {"digest": self.current_document().digest} | request, kind)

    def redo(self, inputs: TaskInputs, leaf: int, values: Sequence[Bytes]) -> bytes:
        """Returns the leaf that an operation of the task gives on the bytes of its values. Raises Refused on others."""
        with self.lock:
            beside = {f"{INPUT}{number}": np.frombuffer(value, np.uint8) for number, value in enumerate(values)}
            request = self._write_request(inputs, beside) | {"do": "redo", "leaf": leaf, "inputs": len(values)}
            return bytes.fromhex(self.ask(request, _LEAF))

    def judge(self, inputs: TaskInputs, leaf: int, values: Sequence[Bytes], results: Sequence[Bytes]) -> bool | None:
        """Returns whether any machine can have got the results of an operation; None where nothing bounds its rounding.

        Raises Refused on other bytes.
        """
        with self.lock:
            shown = [*values, *results]
            beside = {f"{INPUT}{number}": np.frombuffer(value, np.uint8) for number, value in enumerate(shown)}
            asked = {"do": "judge", "leaf": leaf, "inputs": len(shown), "reads": len(values)}
            return self.ask(self._write_request(inputs, beside) | asked, _JUDGED)

    def _write_request(self, inputs: TaskInputs, beside: Arrays) -> dict[str, Any]:
        document = self.current_document()
        rows = {ROWS: np.array(inputs.rows, np.int64)}
        sent = write_inputs(self.running().arena, document, inputs.state, inputs.batch, {**rows, **beside})
        return sent.request | _name_task(inputs) | {"limits": self.children.limits(document.digest, self.settings)}


def _split_leaves(joined: bytes, counts: bytes) -> list[bytes]:
    ends = np.frombuffer(counts, "<u4").astype(np.int64).cumsum() * HASH_BYTES
    return [joined[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)] if len(ends) else []


def _name_task(inputs: TaskInputs) -> dict[str, Any]:
    return {"seed": inputs.seed.hex(), "step": inputs.step.model_dump(mode="json"), "codec": inputs.codec}
