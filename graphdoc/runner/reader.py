"""Reads partitions in a confined child: it parses a stranger's bytes into arrays of the declared shapes."""

import sys
import threading
from dataclasses import asdict
from types import MappingProxyType, TracebackType
from typing import Final, Self

import numpy as np
from pydantic import TypeAdapter, ValidationError

from graphdoc.encoding import Bytes
from graphdoc.errors import RunnerCrashed, RunnerTimeout, TensorsRefused
from graphdoc.figures import Ranges
from graphdoc.formats import format_of
from graphdoc.runner.arena import Arena, Placements, encode_placements, end_of, plan_placements
from graphdoc.runner.process import ChildProcess
from graphdoc.runner.settings import RunnerSettings
from graphdoc.tensors import Expected, Shifted, check_truths
from graphdoc.values import Outside

COMMAND: Final = (sys.executable, "-I", "-m", "graphdoc.runner.reading")
NONE_SHIFTED: Final[Shifted] = MappingProxyType({})
_OUTSIDE: Final[TypeAdapter[Outside | None]] = TypeAdapter(Outside | None)


class Reader:
    """One warm child, for one caller at a time; others wait. After a failure the next call starts another child."""

    def __init__(self, settings: RunnerSettings | None = None) -> None:
        self.settings = settings or RunnerSettings()
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(
        self, kind: str, data: Bytes, expected: Expected, shifted: Shifted = NONE_SHIFTED
    ) -> dict[str, np.ndarray]:
        """Returns the expected arrays of a file of this format, by name; those of `shifted` are derived from stored
        ones.

        Raises TensorsRefused, OutOfMemory, RunnerCrashed, RunnerTimeout; Refused if there is no such format.
        """
        format_of(kind)
        places = plan_placements(dict(sorted(expected.items())), len(data))
        needed = end_of(places, len(data))
        if needed > self.settings.memory_bytes:
            raise TensorsRefused(f"file and arrays take {needed} bytes of {self.settings.memory_bytes}")
        with self._lock:
            return self._read_in_child(kind, data, places, needed, shifted)

    def check(
        self, kind: str, data: Bytes, expected: Expected, ranges: Ranges, shifted: Shifted = NONE_SHIFTED
    ) -> Outside | None:
        """Returns the first value of the file that is outside its range; the file must hold the expected arrays.

        The arrays stay in the child. Raises as `read` does.
        """
        format_of(kind)
        request = {"format": kind, "length": len(data), "shifted": dict(shifted)}
        request |= {"expected": {name: list(one) for name, one in expected.items()}}
        with self._lock:
            child = self._running()
            child.arena.reserve(len(data))
            child.arena.write_bytes([data])
            try:
                allowed = {name: [asdict(one) for one in each] for name, each in ranges.items()}
                return _OUTSIDE.validate_python(child.ask({"do": "check", "ranges": allowed, **request}))
            except ValidationError:
                self._end_child()
                raise RunnerCrashed("it sent an invalid answer") from None
            except (RunnerCrashed, RunnerTimeout):
                self._end_child()
                raise

    def close(self) -> None:
        """Ends the child."""
        with self._lock:
            self._end_child()

    @property
    def pid(self) -> int | None:
        """Returns the child's process id, if it runs."""
        child = self._child
        return None if child is None else child.pid

    def _read_in_child(
        self, kind: str, data: Bytes, places: Placements, needed: int, shifted: Shifted
    ) -> dict[str, np.ndarray]:
        child = self._running()
        child.arena.reserve(needed)
        child.arena.write_bytes([data])
        try:
            request = {"format": kind, "length": len(data), "shifted": dict(shifted)}
            child.ask({"do": "read", "result": encode_placements(places), **request})
        except (RunnerCrashed, RunnerTimeout):
            self._end_child()
            raise
        arrays = child.arena.read(places)
        try:
            for name, array in arrays.items():
                check_truths(name, array)
        except TensorsRefused as error:
            self._end_child()
            raise RunnerCrashed(f"it sent an invalid answer: {error}") from None
        return arrays

    def _running(self) -> ChildProcess:
        if self._child is None:
            arena = Arena.create()
            try:
                self._child = ChildProcess(self.settings, arena, COMMAND, warm=False)  # no torch in it
            except (RunnerCrashed, RunnerTimeout):
                arena.close()
                raise
        return self._child

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()
            child.arena.close()
