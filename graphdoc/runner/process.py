"""One child process from the parent's side: started, sent one request at a time, killed."""

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any, Final

from pydantic import TypeAdapter, ValidationError

from graphdoc import errors
from graphdoc.errors import GraphdocError, RunnerCrashed, RunnerTimeout
from graphdoc.runner import frames
from graphdoc.runner.allowance import OVERDRAWN
from graphdoc.runner.arena import Arena
from graphdoc.runner.card_slots import WAITS, open_slots
from graphdoc.runner.settings import UMASK, RunnerSettings, build_child_environment
from graphdoc.runner.warm_start import ForkedProcess, fork_child

RUN_MODULE: Final = (sys.executable, "-I", "-m")
COMMAND: Final = (*RUN_MODULE, "graphdoc.runner.child")
_ERRORS: Final[dict[str, type[GraphdocError]]] = {
    kind.__name__: kind for kind in (errors.Refused, errors.DocumentRefused, errors.TensorsRefused, errors.OutOfMemory)
}
_DETAIL_LIMIT: Final = 500


@dataclass(frozen=True)
class Greeting:
    """The first message of a child that is ready: its determinism class, and the active measures of confine.py."""

    determinism_class: str
    confined: tuple[str, ...]


_GREETING: Final = TypeAdapter(Greeting)


class ChildProcess:
    """A running child. Every method raises RunnerCrashed or RunnerTimeout, after which the child is gone.

    It is the computing child, or the one that `command` starts. `warm`: a warm process forks it where the command runs
    a module, and it runs that module's `serve`.
    """

    def __init__(
        self, settings: RunnerSettings, arena: Arena, command: Sequence[str] | None = None, warm: bool = True
    ) -> None:
        self.arena = arena
        self._settings = settings
        self._command = tuple(command or COMMAND)
        self._warm = warm
        self._held = ExitStack()
        self._diagnostics: IO[bytes] = self._held.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        for descriptor in (self._requests, self._answers):
            os.set_blocking(descriptor, False)
            self._held.callback(os.close, descriptor)
        try:
            self._process = self._start_process(requests, answers)
        except frames.FrameTimeout:
            self._held.close()
            raise RunnerTimeout(f"{settings.start_seconds:g} s") from None
        finally:
            os.close(requests)
            os.close(answers)
        self.greeting = self._receive_greeting(settings.start_seconds)

    def _receive_greeting(self, seconds: float) -> Greeting:
        try:
            return _GREETING.validate_python(self._receive_answer(time.monotonic() + seconds, seconds))
        except ValidationError:
            raise self._end_crashed_child("it sent an invalid greeting") from None
        except GraphdocError:
            self.end()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(
        self,
        request: dict[str, Any],
        seconds: float = math.inf,
        meanwhile: Callable[[], object] | None = None,
        on_wait: Callable[[], object] = lambda: None,
    ) -> Any:
        """Returns the answer to one request, within the settings' seconds or fewer. Also raises the error that the
        child reports. `meanwhile` is called while the child works, `on_wait` when it waits for other processes on its
        card; neither raises."""
        seconds = min(seconds, self._settings.seconds)
        deadline = time.monotonic() + seconds
        try:
            frames.send_frame(self._requests, request, deadline)
        except frames.Broken:
            raise self._end_crashed_child("it does not read") from None
        except frames.FrameTimeout:
            raise self._timed_out(seconds) from None
        if meanwhile is not None:
            meanwhile()
        return self._receive_answer(deadline, seconds, on_wait)

    def kill(self) -> None:
        """Kills the child; a caller waiting for its answer gets a crash. May be called from any thread."""
        if self._process.returncode is None:
            self._process.kill()

    def end(self) -> None:
        """Kills the child and waits for its end. May be called again."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()
            self._held.close()

    def _start_process(self, requests: int, answers: int) -> "ForkedProcess | subprocess.Popen[bytes]":
        configuration: dict[str, Any] = {
            "parent": os.getpid(),
            "follow_parent": threading.current_thread() is threading.main_thread(),
            "requests": requests,
            "answers": answers,
            "arena": self.arena.descriptor,
            "device": self._settings.device.partition(":")[0],
            "threads": self._settings.threads,
            "memory_bytes": self._settings.memory_bytes,
            "graphs": self._settings.graphs,
            "operations": self._settings.operations,
            "bound_bytes": self._settings.bound_bytes or self._settings.memory_bytes,
        }
        environment = build_child_environment(self._settings)
        if self._warm and self._settings.device == "cpu" and self._command[: len(RUN_MODULE)] == RUN_MODULE:
            descriptors = (requests, answers, self.arena.descriptor, self._diagnostics.fileno())
            module, seconds = self._command[-1], self._settings.start_seconds
            if (forked := fork_child(module, environment, configuration, descriptors, seconds)) is not None:
                return forked
        slots = open_slots(self._settings.slots)
        passed = [requests, answers, self.arena.descriptor, *([] if slots is None else [slots])]
        try:
            return subprocess.Popen(
                [*self._command, json.dumps(configuration | {"slots": slots})],
                env=environment,
                cwd=os.sep,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._diagnostics,
                pass_fds=passed,
                start_new_session=True,
                umask=UMASK,
            )
        finally:
            if slots is not None:
                os.close(slots)  # its locks end with the child

    def _receive_answer(self, deadline: float, seconds: float, on_wait: Callable[[], object] = lambda: None) -> Any:
        try:
            while (answer := frames.receive_frame(self._answers, deadline)) == WAITS:
                on_wait()
        except frames.Broken as error:
            raise self._end_crashed_child(str(error)) from None
        except frames.FrameTimeout:
            raise self._timed_out(seconds) from None
        if set(answer) == {"ok"}:
            return answer["ok"]
        raise self._build_reported_error(answer)

    def _build_reported_error(self, answer: dict[str, Any]) -> GraphdocError:
        name, detail = (str(answer.get(key, ""))[:_DETAIL_LIMIT] for key in ("error", "detail"))
        if name in _ERRORS:
            return _ERRORS[name](detail)
        return self._end_crashed_child(f"it answered with the error {name[:80]}")

    def _end_crashed_child(self, detail: str) -> RunnerCrashed | RunnerTimeout:
        ending = self._last_words()
        self.end()
        code = self._process.wait()
        if code == OVERDRAWN:
            return RunnerTimeout("it took more processor time than what it computes should take")
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return RunnerCrashed(f"{detail}; {how}; {ending}" if ending else f"{detail}; {how}")

    def _timed_out(self, seconds: float) -> RunnerTimeout:
        self.end()
        return RunnerTimeout(f"{seconds:g} s")

    def _last_words(self) -> str:
        """Returns the last line that the child wrote to its standard error."""
        size = self._diagnostics.seek(0, os.SEEK_END)
        self._diagnostics.seek(max(0, size - _DETAIL_LIMIT))
        lines = self._diagnostics.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""
