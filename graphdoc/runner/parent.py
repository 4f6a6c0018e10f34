"""The runner: warm child processes that run strangers' documents, one per job. The parent side never imports torch."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Annotated, Any, Final, Self, TypeVar

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from gradmarket.market.data.manifest import Labelled
from gradmarket.market.digests import blob_digest
from gradmarket.market.errors import DocumentRefused, Refused, RunnerCrashed, RunnerFailed, RunnerTimeout
from gradmarket.market.gradient.arrays import Bytes
from gradmarket.market.job_parts import Precision
from gradmarket.market.model.layout import layout
from gradmarket.market.step import Step
from graphdoc.document.graph import Document
from graphdoc.document.schema import load
from graphdoc.figures import Bound, Metrics, Published, Range, Ranges
from graphdoc.runner.arena import encoded, end_of, planned
from graphdoc.runner.children import JobChildren, Warm
from graphdoc.runner.confine import MEASURES
from graphdoc.runner.documents import DocumentInfo, KnownDocument, answered, written
from graphdoc.runner.process import ChildProcess
from graphdoc.runner.reader import Reader
from graphdoc.runner.settings import RunnerSettings
from graphdoc.tensors import Expected, unpack
from graphdoc.values import Outside

Arrays = Mapping[str, np.ndarray]
Answer = TypeVar("Answer")
Length = Annotated[int, Field(ge=1, le=2**40)]
Lengths = tuple[Length, Length, Length]
DOCUMENTS_KEPT: Final = 4
_NOTHING: Final = TypeAdapter(type(None))
_BOUND: Final = TypeAdapter(Bound)
_METRICS: Final = TypeAdapter(Metrics)
_RANGES: Final = TypeAdapter(dict[str, tuple[Range, ...]])
_LENGTHS: Final = TypeAdapter(Lengths)


class Runner:
    """One warm child per job, for one caller at a time; others wait. Another child reads partitions in parallel.

    Its methods raise Refused for bad input, and RunnerCrashed, RunnerTimeout or OutOfMemory if the child failed; the
    next call then starts another child. Children end with `close`, and with this process however it ends.
    """

    def __init__(self, settings: RunnerSettings | None = None) -> None:
        self.settings = settings or RunnerSettings()
        self._lock = threading.RLock()
        self.alone = threading.RLock()
        """Held by a caller over several calls that belong together, such as `load` and `compute`."""
        self._children = JobChildren()
        self._documents: dict[str, KnownDocument] = {}
        self._current = ""
        self._reader = Reader(replace(self.settings, device="cpu"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def turn(self, job: str, publishes: bool = False) -> None:
        """Makes `job` (any unique name) the current one; it never uses a child that saw another job's arrays.

        `publishes`: its child takes `publish` too. Such a child starts in nearly twice the time.
        """
        with self._lock:
            self._children.turn(job, publishes)

    def start(self) -> None:
        """Starts the child unless it runs: 1 to 3 seconds, mostly torch's import."""
        with self._lock:
            self._running()

    def close(self) -> None:
        """Ends the children; a step that is being computed in another thread fails."""
        if (running := self._children.current) is not None:
            running.child.kill()
        with self._lock:
            self._children.close()
        self._reader.close()

    @property
    def pid(self) -> int | None:
        """Returns the process id of the current job's child, if it runs."""
        warm = self._children.current
        return None if warm is None else warm.child.pid

    @property
    def current(self) -> str:
        """Returns the digest of the document loaded last; empty if there is none."""
        return self._current

    def determinism_class(self) -> str:
        """Returns the determinism class; runners of one class compute the same bits: votes prove it, not this name."""
        with self._lock:
            return self._running().greeting.determinism_class

    def missing(self) -> tuple[str, ...]:
        """Returns the measures of confine.py that this machine does not offer."""
        with self._lock:
            return tuple(name for name in MEASURES if name not in self._running().greeting.confined)

    def publish(
        self,
        architecture: str,
        arguments: Mapping[str, Any],
        data: Labelled,
        seed: int,
        precision: Precision = "fp32",
    ) -> Published:
        """Returns a ready architecture for such data as documents and parameters. Raises JobRefused.

        The current job is one that `turn` was told of with `publishes`.
        """
        request = {"do": "publish", "architecture": architecture, "arguments": dict(arguments), "seed": seed}
        request |= {"data": data.model_dump(mode="json"), "precision": precision}
        with self._lock:
            if not self._children.publishes:
                raise Refused("the current job's child publishes nothing")
            lengths = self._ask(request, _LENGTHS)
            arena = self._running().arena
            if sum(lengths) > arena.size:
                self._children.drop()
                raise RunnerCrashed("it published more than it wrote")
            document, evaluation, parameters = arena.read_bytes(lengths)
        return Published(document, evaluation, unpack(parameters))

    def load(self, document: bytes) -> DocumentInfo:
        """Makes this the current document; the child parses it first, under its limits. Raises DocumentRefused."""
        with self._lock:
            self._current = self._known(document)
            return self._documents[self._current].info

    def bound(self, *rows: int, by_row: bool = False) -> Bound:
        """Returns the highest cost of a microbatch of the current document with any of these row counts, largest first.

        `by_row`: with each row's gradient apart. A dearer step is refused from then on. Raises DocumentRefused.
        """
        with self._lock:
            document = self._needed(self._current)
            bounded = self._bounded(document.digest, rows, True, by_row)
            self._children.tell(document.digest, bounded)
            return bounded

    def bound_evaluation(self, document: bytes, *rows: int) -> Bound:
        """The same of a forward pass of an evaluation document; the current document stays the current one."""
        with self._lock:
            return self._bounded(self._needed(self._known(document)).digest, rows, False)

    def _bounded(self, digest: str, rows: tuple[int, ...], training: bool, by_row: bool = False) -> Bound:
        try:
            request = {"do": "bound", "digest": digest, "rows": rows, "training": training, "by_row": by_row}
            return self._ask(request, _BOUND)
        except RunnerTimeout as error:
            raise DocumentRefused(f"what it costs is not known in time: {error.detail}") from None

    def ranges(self, rows: int) -> dict[str, tuple[Range, ...]]:
        """Returns the values that each data input of the current document accepts, if restricted.

        Raises DocumentRefused.
        """
        with self._lock:
            document = self._needed(self._current)
            return self._ask({"do": "ranges", "digest": document.digest, "rows": rows}, _RANGES)

    def compute(self, state: Arrays, batch: Arrays, seed: bytes, step: Step) -> dict[str, np.ndarray]:
        """Computes a step of the current document: the arrays of market.model.compute, in its layout's order."""
        with self._lock:
            document = self._needed(self._current)
            sent = written(self._running().arena, document, state, batch)
            result = planned(answered(self._documents[document.digest].info, state, step), sent.end)
            arena = self._running().arena
            arena.reserve(end_of(result, sent.end))
            request = {"do": "compute", "seed": seed.hex(), "step": step.model_dump(mode="json"), **sent.request}
            request |= {"result": encoded(result), "limits": self._children.limits(document.digest, self.settings)}
            self._ask(request, _NOTHING)
            return arena.read(result)

    def evaluate(self, document: bytes, state: Arrays, batch: Arrays) -> Metrics:
        """Loss and metrics of an evaluation document, bounded like a step; the current document stays current."""
        with self._lock:
            needed = self._needed(self._known(document))
            sent = written(self._running().arena, needed, state, batch)
            limits = self._children.limits(needed.digest, self.settings)
            return self._ask({"do": "evaluate", "limits": limits, **sent.request}, _METRICS)

    def read(self, kind: str, data: Bytes, expected: Expected) -> dict[str, np.ndarray]:
        """Reads a partition's arrays; see Reader. A separate child reads while another one computes."""
        return self._reader.read(kind, data, expected)

    def check(self, kind: str, data: Bytes, expected: Expected, ranges: Ranges) -> Outside | None:
        """Returns the first value of a partition that is outside its range; see Reader."""
        return self._reader.check(kind, data, expected, ranges)

    def _known(self, data: bytes) -> str:
        """Returns the document's digest, after the child has accepted it once."""
        digest = blob_digest(data)
        if digest not in self._documents:
            self._send(digest, data)
            document = load(data)
            self._documents[digest] = KnownDocument(data, DocumentInfo(document, layout(document)))
            self._forget_old()
        return digest

    def _forget_old(self) -> None:
        for digest in list(self._documents)[:-DOCUMENTS_KEPT]:
            if digest != self._current:
                del self._documents[digest]

    def _needed(self, digest: str) -> Document:
        """Returns the document of this digest, and sends it to the current child if that does not have it."""
        if digest not in self._documents:
            raise Refused("no document was loaded")
        if digest not in self._warm().documents:
            self._send(digest, self._documents[digest].data)
        return self._documents[digest].info.document

    def _send(self, digest: str, data: bytes) -> None:
        warm = self._warm()
        warm.child.arena.write_bytes([data])
        others = [known for known in warm.documents if known != digest]
        old, warm.documents = others[: -DOCUMENTS_KEPT + 1], others[-DOCUMENTS_KEPT + 1 :]
        self._ask({"do": "load", "length": len(data), "forget": old}, _NOTHING)
        warm.documents.append(digest)

    def _warm(self) -> Warm:
        return self._children.running(self.settings)

    def _running(self) -> ChildProcess:
        return self._warm().child

    def _ask(self, request: dict[str, Any], kind: TypeAdapter[Answer]) -> Answer:
        """Returns the child's validated answer; ends a child that fails or answers anything else."""
        child = self._running()
        try:
            return kind.validate_python(child.ask(request))
        except ValidationError:
            self._children.drop()
            raise RunnerCrashed("it sent an invalid answer") from None
        except RunnerFailed:  # also after running out of memory: its mappings would stay
            self._children.drop()
            raise
