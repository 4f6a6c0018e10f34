"""The runner: warm child processes that run strangers' documents, one per job. The parent side never imports torch."""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from graphdoc.document.graph import Document, answer_of
from graphdoc.document.schema import parse_document
from graphdoc.encoding import digest_of
from graphdoc.errors import DocumentRefused, Refused, RunnerCrashed, RunnerFailed, RunnerTimeout
from graphdoc.figures import Bound, Metrics, Range
from graphdoc.runner.arena import AnswerMemory, Described, encode_placements, end_of, plan_placements
from graphdoc.runner.children import JobChildren, Warm
from graphdoc.runner.confine import MEASURES
from graphdoc.runner.documents import KnownDocument, write_inputs
from graphdoc.runner.process import ChildProcess
from graphdoc.runner.reader import Reader
from graphdoc.runner.settings import RunnerSettings

Arrays = Mapping[str, np.ndarray]
Answer = TypeVar("Answer")
DOCUMENTS_KEPT: Final = 4
_NOTHING: Final = TypeAdapter(type(None))
_BOUND: Final = TypeAdapter(Bound)
_METRICS: Final = TypeAdapter(Metrics)
_MEASURED: Final = TypeAdapter(dict[str, float])
_RANGES: Final = TypeAdapter(dict[str, tuple[Range, ...]])


class DocumentRunner:
    """One warm child per job, for one caller at a time; others wait. Another child reads partitions in parallel.

    Its methods raise Refused for bad input, and RunnerCrashed, RunnerTimeout or OutOfMemory if the child failed; the
    next call then starts another child, after a crash on a card one without CUDA graphs. Children end with `close`, and
    with this process in any case.
    """

    def __init__(self, settings: RunnerSettings | None = None) -> None:
        self.settings = settings or RunnerSettings()
        self.lock = threading.RLock()
        self.alone = threading.RLock()
        """Held by a caller over several calls that belong together, such as `load` and `compute`."""
        self.children = JobChildren()
        self._documents: dict[str, KnownDocument] = {}
        self._current = ""
        self.reader = Reader(replace(self.settings, device="cpu"))
        """Reads partitions in a separate child, while another one computes."""
        self.on_wait: Callable[[], object] = lambda: None
        """Called in the asking thread when a child waits for other processes' memory of its card; raises nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def turn(self, job: str) -> None:
        """Makes `job` (any unique name) the current one; it never uses a child that saw another job's arrays."""
        with self.lock:
            self.children.turn(job)

    def start(self) -> None:
        """Starts the child unless it runs: 1 to 3 seconds, mostly torch's import."""
        with self.lock:
            self.running()

    def close(self) -> None:
        """Ends the children; a step that is being computed in another thread fails."""
        if (running := self.children.current) is not None:
            running.child.kill()
        with self.lock:
            self.children.close()
        self.reader.close()

    @property
    def pid(self) -> int | None:
        """Returns the process id of the current job's child, if it runs."""
        warm = self.children.current
        return None if warm is None else warm.child.pid

    @property
    def current(self) -> str:
        """Returns the digest of the document loaded last; empty if there is none."""
        return self._current

    def determinism_class(self) -> str:
        """Returns the determinism class; runners of one class compute the same bits: votes prove it, not this name."""
        with self.lock:
            return self.running().greeting.determinism_class

    def missing(self) -> tuple[str, ...]:
        """Returns the measures of confine.py that this machine does not offer."""
        with self.lock:
            return tuple(name for name in MEASURES if name not in self.running().greeting.confined)

    def load(self, document: bytes) -> Document:
        """Makes this the current document; the child parses it first, under its limits. Raises DocumentRefused."""
        with self.lock:
            self._current = self._known(document)
            return self._documents[self._current].document

    def bound(self, *rows: int, by_row: bool = False) -> Bound:
        """Returns the highest cost of a microbatch of the current document with any of these row counts, largest first.

        `by_row`: with each row's gradient apart. A dearer step is refused from then on. Raises DocumentRefused.
        """
        with self.lock:
            document = self.current_document()
            bounded = self._bounded(document.digest, rows, True, by_row)
            self.children.store_bound(document.digest, bounded)
            return bounded

    def bound_evaluation(self, document: bytes, *rows: int) -> Bound:
        """Returns the same for a forward pass of an evaluation document; the current document stays the current one."""
        with self.lock:
            return self._bounded(self._needed(self._known(document)).digest, rows, False)

    def _bounded(self, digest: str, rows: tuple[int, ...], training: bool, by_row: bool = False) -> Bound:
        try:
            request = {"do": "bound", "digest": digest, "rows": rows, "training": training, "by_row": by_row}
            return self.ask(request, _BOUND)
        except RunnerTimeout as error:
            raise DocumentRefused(f"its cost was not computed in time: {error.detail}") from None

    def ranges(self, rows: int) -> dict[str, tuple[Range, ...]]:
        """Returns the values that each data input of the current document accepts, if restricted.

        Raises DocumentRefused.
        """
        with self.lock:
            document = self.current_document()
            return self.ask({"do": "ranges", "digest": document.digest, "rows": rows}, _RANGES)

    def run(self, state: Arrays, batch: Arrays, seed: bytes = bytes(32), pass_rows: int = 0) -> dict[str, np.ndarray]:
        """Returns the current document's answer to a batch, the arrays of graph.answer_of.

        Loss and gradients are means over the rows, gone through `pass_rows` at a time (0: all at once); `seed` draws
        for dropout. Raises Refused.
        """
        with self.lock:
            document = self.current_document()
            request = {"do": "run", "seed": seed.hex(), "pass_rows": pass_rows}
            return self.ask_arrays(request, state, batch, answer_of(document))

    def evaluate(self, document: bytes, state: Arrays, batch: Arrays) -> Metrics:
        """Returns loss and metrics of an evaluation document, bounded like a step; the current document stays."""
        with self.lock:
            needed = self._needed(self._known(document))
            sent = write_inputs(self.running().arena, needed, state, batch)
            limits = self.children.limits(needed.digest, self.settings)
            return self.ask({"do": "evaluate", "limits": limits, **sent.request}, _METRICS)

    def measure(self, document: bytes, state: Arrays, batch: Arrays, seconds: float = math.inf) -> dict[str, float]:
        """Returns the metrics of a metrics document over all rows of the batch together, bounded like a step.

        `seconds`: of wall time, where fewer than the settings'.
        """
        with self.lock:
            needed = self._needed(self._known(document))
            sent = write_inputs(self.running().arena, needed, state, batch)
            limits = self.children.limits(needed.digest, self.settings)
            return self.ask({"do": "measure", "limits": limits, **sent.request}, _MEASURED, seconds)

    def current_document(self) -> Document:
        """Returns the document loaded last; the current child has it then. Raises Refused if there is none."""
        return self._needed(self._current)

    def ask_arrays(
        self,
        request: dict[str, Any],
        state: Arrays,
        batch: Arrays,
        wanted: Described,
        beside: Arrays | None = None,
        name: str = "",
    ) -> dict[str, np.ndarray]:
        """Returns the `wanted` arrays that the child answers to a request over the current document, with these inputs.

        `beside` is sent next to the document's state. Under `name`, which no other values have, the state stays with
        the child until the next request. The caller holds `lock`. Raises Refused.
        """
        document = self.current_document()
        arena = self.running().arena
        sent = write_inputs(arena, document, state, batch, beside, name)
        result = plan_placements(wanted, sent.end)
        arena.reserve(end_of(result, sent.end))
        limits = self.children.limits(document.digest, self.settings)
        memory = AnswerMemory(result)
        meanwhile = None if self.settings.device == "cpu" else memory.fill  # a pass on this host needs the memory first
        asked = request | sent.request | {"result": encode_placements(result), "limits": limits}
        self.ask(asked, _NOTHING, meanwhile=meanwhile)
        arena.held = sent.held
        return arena.read(result, memory)

    def _known(self, data: bytes) -> str:
        """Returns the document's digest, after the child has accepted it once."""
        digest = digest_of(data)
        if digest not in self._documents:
            self._send(digest, data)
            self._documents[digest] = KnownDocument(data, parse_document(data))
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
        return self._documents[digest].document

    def _send(self, digest: str, data: bytes) -> None:
        warm = self._warm()
        warm.child.arena.write_bytes([data])
        others = [known for known in warm.documents if known != digest]
        old, warm.documents = others[: -DOCUMENTS_KEPT + 1], others[-DOCUMENTS_KEPT + 1 :]
        self.ask({"do": "load", "length": len(data), "forget": old}, _NOTHING)
        warm.documents.append(digest)

    def _warm(self) -> Warm:
        return self.children.running(self.settings)

    def running(self) -> ChildProcess:
        """Returns the current job's child, started if needed. Raises RunnerFailed."""
        return self._warm().child

    def ask(
        self,
        request: dict[str, Any],
        kind: TypeAdapter[Answer],
        seconds: float = math.inf,
        meanwhile: Callable[[], object] | None = None,
    ) -> Answer:
        """Returns the child's validated answer; ends a child that fails or answers otherwise. The caller holds
        `lock`."""
        child = self.running()
        child.arena.held = None
        try:
            return kind.validate_python(child.ask(request, seconds, meanwhile, self.on_wait))
        except ValidationError:
            self.children.drop()
            raise RunnerCrashed("it sent an invalid answer") from None
        except RunnerFailed as error:  # also after running out of memory: its mappings would stay
            self.children.drop()
            if isinstance(error, RunnerCrashed) and self.settings.device != "cpu":
                self.settings = replace(self.settings, graphs=False)
            raise
