"""The parent's side of a market's children. It never imports torch."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np
from pydantic import Field, TypeAdapter

from gradmarket.market.errors import JobRefused, Refused, RunnerCrashed
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload_layout import Layout, build_layout, payload_bytes
from gradmarket.market.manifest import Labelled, Manifest, Partition
from gradmarket.market.step import PAYLOAD, Step, WindowStep
from gradmarket.runner.drawn_rows import CORRECTION, DRAWN
from gradmarket.runner.window_state import MEMORY, by_step, own_names
from graphdoc.document.graph import Document, Precision, answer_of
from graphdoc.encoding import Bytes
from graphdoc.figures import Published, Ranges
from graphdoc.runner.arena import Described, describe_arrays
from graphdoc.runner.document_runner import Arrays, DocumentRunner
from graphdoc.runner.settings import RunnerSettings
from graphdoc.tensors import unpack_tensors
from graphdoc.values import Outside

COMPUTING: Final = (sys.executable, "-I", "-m", "gradmarket.runner.step_child")
PUBLISHING: Final = (sys.executable, "-I", "-m", "gradmarket.runner.publishing")
Length = Annotated[int, Field(ge=0, le=2**40)]
Lengths = tuple[Length, Length, Length, Length]


@dataclass(frozen=True)
class DocumentInfo:
    """A document that a child accepted, and the layout of its step's result."""

    document: Document
    layout: Layout

    @classmethod
    def of(cls, document: Document) -> "DocumentInfo":
        return cls(document, build_layout(document))


@dataclass(frozen=True)
class FieldFault:
    """A fault that the publishing child finds in a field of the job."""

    field: Annotated[str, Field(max_length=500)]
    detail: Annotated[str, Field(max_length=500)]


_PUBLISHED: Final[TypeAdapter[Lengths | FieldFault]] = TypeAdapter(Lengths | FieldFault)


@dataclass(frozen=True)
class TaskInputs:
    """The inputs of a task: `state` is the round's, `batch` are its `rows` in order."""

    rows: Sequence[int]
    state: Arrays
    batch: Arrays
    seed: bytes
    step: Step
    codec: str


class Runner(DocumentRunner):
    """Computes a market's steps, and publishes ready architectures."""

    def __init__(self, settings: RunnerSettings | None = None) -> None:
        super().__init__(settings)
        self._publishes = False
        self._info: DocumentInfo | None = None
        self.children.turn("", COMPUTING)

    def turn(self, job: str, publishes: bool = False) -> None:
        """Makes `job` (any unique name) the current one; it never uses a child that saw another job's arrays.

        `publishes`: its child takes `publish` too. Such a child starts in nearly twice the time.
        """
        with self.lock:
            self._publishes = publishes
            self.children.turn(job, PUBLISHING if publishes else COMPUTING)

    def publish(
        self,
        architecture: str,
        arguments: Mapping[str, Any],
        data: Labelled,
        seed: int,
        precision: Precision = "fp32",
        metrics: Sequence[str] = (),
    ) -> Published:
        """Returns a ready architecture for such data as documents and parameters, with a document of ready-made
        `metrics` where there are any. Raises JobRefused.

        The current job must have been set by `turn` with `publishes`.
        """
        request = {"do": "publish", "architecture": architecture, "arguments": dict(arguments), "seed": seed}
        request |= {"data": data.model_dump(mode="json"), "precision": precision, "metrics": list(metrics)}
        with self.lock:
            if not self._publishes:
                raise Refused("the current job's child publishes nothing")
            answer = self.ask(request, _PUBLISHED)
            if isinstance(answer, FieldFault):
                raise JobRefused(answer.field, answer.detail)
            arena = self.running().arena
            if sum(answer) > arena.size:
                self.children.drop()
                raise RunnerCrashed("it published more than it wrote")
            document, evaluation, measured, parameters = arena.read_bytes(answer)
        return Published(document, evaluation, unpack_tensors(parameters), measured or None)

    def read_partition(self, manifest: Manifest, partition: Partition, data: Bytes) -> dict[str, np.ndarray]:
        """Returns a row's inputs as the manifest declares them, over all rows of the partition's file; see Reader."""
        return self.reader.read(partition.format, data, manifest.batch(partition.rows), manifest.shifted)

    def check_partition(self, manifest: Manifest, partition: Partition, data: Bytes, ranges: Ranges) -> Outside | None:
        """Returns the first value of a partition that is outside its range; see Reader."""
        return self.reader.check(partition.format, data, manifest.batch(partition.rows), ranges, manifest.shifted)

    def compute(self, state: Arrays, batch: Arrays, seed: bytes, step: Step) -> dict[str, np.ndarray]:
        """Computes a step of the current document: the arrays of runner.compute, in its layout's order.

        An inner optimizer's memory, corrections and drawn counts go in with the state if that has them.
        """
        with self.lock:
            document = self.current_document()
            wanted: Described = answer_of(document)
            if isinstance(step, WindowStep):  # the state after the window, and its losses
                whole = build_layout(document)
                own = {name: state[name] for name in own_names(state, whole)}
                wanted = {**describe_arrays(own), **dict.fromkeys(by_step(whole), ((step.moves,), "float32"))}
            return self._ask_step(state, batch, seed, step, wanted, "")

    def compute_payload(
        self, state: Arrays, batch: Arrays, seed: bytes, step: Step, codec: str, name: str = ""
    ) -> Bytes:
        """Returns the payload of the answer that `compute` gives, packed where it is computed; it has no leaves.

        By `name`, which no other values have, the state stays there until the next request.
        """
        with self.lock:
            document = self.current_document()
            if self._info is None or self._info.document is not document:
                self._info = DocumentInfo.of(document)  # its layout knows where the shards of each codec lie
            size = payload_bytes(self._info.layout, load_codec(codec))
            answer = self._ask_step(state, batch, seed, step, {PAYLOAD: ((size,), "uint8")}, codec, name)
            return answer[PAYLOAD].data.toreadonly()

    def _ask_step(
        self, state: Arrays, batch: Arrays, seed: bytes, step: Step, wanted: Described, codec: str, name: str = ""
    ) -> dict[str, np.ndarray]:
        beside = {name: array for name, array in state.items() if name.startswith((MEMORY, CORRECTION, DRAWN))}
        request = {"do": "compute", "seed": seed.hex(), "step": step.model_dump(mode="json"), "codec": codec}
        return self.ask_arrays(request, state, batch, wanted, beside, "" if beside else name)
