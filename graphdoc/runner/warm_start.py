"""Starts children from a warm process, which has imported their modules: milliseconds in place of torch's import.

Each environment of children has one warm process: it is started by exec with that environment alone, before anything
secret could be in its memory, and it forks. Linux only; elsewhere, and where it fails twice, `fork_child` returns None,
and the caller starts an interpreter.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final

from graphdoc.runner.forking import MESSAGE_LIMIT
from graphdoc.runner.frames import FrameTimeout
from graphdoc.runner.settings import UMASK

AVAILABLE: Final = sys.platform == "linux" and hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")
COMMAND: Final = (sys.executable, "-I", "-m", "graphdoc.runner.forking")
ATTEMPTS: Final = 2
REPORT_SECONDS: Final = 5.0
"""Seconds for the warm process to report a child's end."""
_Environment = tuple[tuple[str, str], ...]


class ForkedProcess:
    """A child of the warm process, with the interface of subprocess.Popen."""

    def __init__(self, pid: int, descriptor: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._descriptor, self._status = descriptor, status
        self._lock = threading.Lock()

    def kill(self) -> None:
        with self._lock, suppress(ProcessLookupError):
            if self.returncode is None:
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def wait(self) -> int:
        """Returns the exit code, or a signal's number below 0; SIGKILL's where the warm process ended first, or does
        not report within REPORT_SECONDS of the child's end."""
        if self.returncode is not None:
            return self.returncode
        _is_readable(self._descriptor)
        report = os.read(self._status, 16) if _is_readable(self._status, REPORT_SECONDS) else b""
        with self._lock:
            self.returncode = int(report) if report else -signal.SIGKILL
            os.close(self._descriptor)
            os.close(self._status)
            return self.returncode


def _is_readable(descriptor: int, seconds: float | None = None) -> bool:
    """Returns whether data, or an end, has come within these seconds; None waits for ever."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if seconds is None else 1000 * seconds))


class WarmProcess:
    """A running warm process. `fork` raises OSError where it fails, and FrameTimeout; then it gets no more requests,
    and ends with the last of its children."""

    def __init__(self, environment: _Environment) -> None:
        self.owner, self.environment = os.getpid(), environment
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, ExitStack() as failed:
            failed.callback(self.close)
            self._process = subprocess.Popen(
                [*COMMAND, str(theirs.fileno()), str(os.getpid())],
                env=dict(environment),
                cwd=os.sep,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                umask=UMASK,
            )
            failed.pop_all()

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(
        self, module: str, configuration: Mapping[str, Any], descriptors: Sequence[int], deadline: float
    ) -> ForkedProcess | None:
        """Returns a child that serves by this module; None where a fork is not safe, as a module started threads."""
        ours, status = os.pipe()
        try:
            request = json.dumps({"module": module, "configuration": configuration}).encode()
            socket.send_fds(self._control, [request], [*descriptors, status])
            self._control.settimeout(max(0.001, deadline - time.monotonic()))
            answer, received, _, _ = socket.recv_fds(self._control, MESSAGE_LIMIT, 1)
            if not answer:
                raise ConnectionResetError("the warm process ended")
            if received:
                forked = ForkedProcess(json.loads(answer)["pid"], received[0], ours)
                ours = -1
                return forked
            return None
        except TimeoutError:
            self.close()
            raise FrameTimeout from None
        except OSError:
            self.close()
            raise
        finally:
            os.close(status)
            if ours >= 0:
                os.close(ours)

    def answers(self) -> bool:
        """Returns whether it accepts requests for children."""
        return self._control.fileno() >= 0

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        """Makes no more requests; the process ends with the last of its children."""
        self._control.close()

    def end(self) -> None:
        """Ends the process, and its children."""
        self.close()
        self._process.kill()
        self._process.wait()


_running: list[WarmProcess] = []
"""The warm processes of this process, and after a fork those of its parent."""
_lock = threading.Lock()


def fork_child(
    module: str,
    environment: Mapping[str, str],
    configuration: Mapping[str, Any],
    descriptors: Sequence[int],
    start_seconds: float,
) -> ForkedProcess | None:
    """Returns a child of the warm process for this environment, or None where the caller must start it.

    `descriptors`: those of forking.DESCRIPTORS but for the last. Raises FrameTimeout.
    """
    if not AVAILABLE:
        return None
    wanted = tuple(sorted(environment.items()))
    with _lock:
        for _ in range(ATTEMPTS):
            with suppress(OSError):
                for dropped in [one for one in _running if one.owner != os.getpid() or one.has_ended()]:
                    _running.remove(dropped)
                    dropped.close()
                warm = next((one for one in _running if one.environment == wanted and one.answers()), None)
                if warm is None:
                    warm = WarmProcess(wanted)
                    _running.append(warm)
                return warm.fork(module, configuration, descriptors, time.monotonic() + start_seconds)
    return None


def _own_processes() -> list[WarmProcess]:
    return [warm for warm in list(_running) if warm.owner == os.getpid()]


def list_warm_processes() -> list[int]:
    """Returns the process ids of this process's warm processes."""
    return [warm.pid for warm in _own_processes()]


@atexit.register
def end_warm_processes() -> None:
    """Ends the warm processes of this process; their children end too. It waits for no start that is under way."""
    for warm in _own_processes():
        _running.remove(warm)
        warm.end()
