"""The parent's side of a tracing child: commits to a task's operations, and computes one of them. No torch."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np
from pydantic import Field, TypeAdapter

from gradmarket.market.errors import RunnerCrashed
from gradmarket.market.step import Step
from gradmarket.runner.market_runner import Runner
from gradmarket.runner.traced_fields import HASH_BYTES, INPUT, ROWS
from graphdoc.encoding import Bytes
from graphdoc.runner.document_runner import Arrays
from graphdoc.runner.documents import write_inputs

TRACING: Final = (sys.executable, "-I", "-m", "gradmarket.runner.tracing_child")
Number = Annotated[int, Field(ge=0, lt=2**40)]
_LENGTHS: Final = TypeAdapter(list[Number])
_LEAF: Final = TypeAdapter(Annotated[str, Field(pattern=r"^([0-9a-f]{64})*$")])


@dataclass(frozen=True)
class TaskInputs:
    """What a task is computed from: `state` is the round's, `batch` are its `rows` in order."""

    rows: Sequence[int]
    state: Arrays
    batch: Arrays
    seed: bytes
    step: Step
    codec: str


@dataclass(frozen=True)
class OperationInfo:
    """One operation of a task of `count`; `read` are the (operation, result) that it reads, each once."""

    count: Number
    name: Annotated[str, Field(max_length=1000)]
    results: Number
    read: tuple[tuple[Number, Number], ...]


@dataclass(frozen=True)
class CommittedTrace:
    """Every leaf of a task, its payload's root, and the values that were asked for, as bytes."""

    leaves: Sequence[bytes]
    root: bytes
    values: Sequence[bytes]


_INFO: Final = TypeAdapter(OperationInfo)


class TracingRunner(Runner):
    """A Runner whose children trace as well. Every method takes the current document. Raises as Runner does."""

    def turn(self, job: str, publishes: bool = False) -> None:  # noqa: ARG002  # its child publishes nothing
        with self.lock:
            self.children.turn(job, TRACING)

    def trace(self, inputs: TaskInputs, wanted: Sequence[tuple[int, int]] = ()) -> CommittedTrace:
        """Computes a task operation by operation. `wanted` are results by operation and number."""
        with self.lock:
            request = self._write_request(inputs, {}) | {"do": "trace", "wanted": [list(pair) for pair in wanted]}
            lengths = self.ask(request, _LENGTHS)
            arena = self.running().arena
            if sum(lengths) > arena.size or len(lengths) != 3 + len(wanted):
                self.children.drop()
                raise RunnerCrashed("it traced more than it wrote")
            joined, counts, root, *values = arena.read_bytes(lengths)
        ends = np.frombuffer(counts, "<u4").astype(np.int64).cumsum() * HASH_BYTES
        leaves = [joined[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        return CommittedTrace(leaves, root, values)

    def describe(self, inputs: TaskInputs, leaf: int) -> OperationInfo:
        """Returns what everybody knows of an operation."""
        with self.lock:
            request = _name_task(inputs) | {"do": "describe", "digest": self.current_document().digest, "leaf": leaf}
            return self.ask(request, _INFO)

    def redo(self, inputs: TaskInputs, leaf: int, values: Sequence[Bytes]) -> bytes:
        """Returns the leaf that an operation gives on the bytes of what it reads. Raises Refused on other bytes."""
        with self.lock:
            beside = {f"{INPUT}{number}": np.frombuffer(value, np.uint8) for number, value in enumerate(values)}
            request = self._write_request(inputs, beside) | {"do": "redo", "leaf": leaf, "inputs": len(values)}
            return bytes.fromhex(self.ask(request, _LEAF))

    def _write_request(self, inputs: TaskInputs, beside: Arrays) -> dict[str, Any]:
        document = self.current_document()
        rows = {ROWS: np.array(inputs.rows, np.int64)}
        sent = write_inputs(self.running().arena, document, inputs.state, inputs.batch, {**rows, **beside})
        return sent.request | _name_task(inputs) | {"limits": self.children.limits(document.digest, self.settings)}


def _name_task(inputs: TaskInputs) -> dict[str, Any]:
    return {"seed": inputs.seed.hex(), "step": inputs.step.model_dump(mode="json"), "codec": inputs.codec}
