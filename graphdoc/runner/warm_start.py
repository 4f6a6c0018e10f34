"""Starts children from a warm process, which has imported their modules: milliseconds in place of torch's import.

There is one warm process for each environment of children: it is started by exec with that and nothing else, before
anything secret could be in its memory, and it forks. Linux only; elsewhere, and where it fails twice, `fork_child`
returns None, and the caller starts an interpreter.
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
from contextlib import suppress
from typing import Any, Final

from graphdoc.runner.forking import MESSAGE_LIMIT
from graphdoc.runner.frames import FrameTimeout
from graphdoc.runner.settings import UMASK

AVAILABLE: Final = sys.platform == "linux" and hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")
COMMAND: Final = (sys.executable, "-I", "-m", "graphdoc.runner.forking")
ATTEMPTS: Final = 2
_Environment = tuple[tuple[str, str], ...]


class ForkedProcess:
    """A child of the warm process, as subprocess.Popen shows one of this process."""

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
        """Returns the exit code, or a signal's number below 0; SIGKILL's where the warm process ended first."""
        if self.returncode is not None:
            return self.returncode
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.poll()
        told = os.read(self._status, 16)
        with self._lock:
            self.returncode = int(told) if told else -signal.SIGKILL
            os.close(self._descriptor)
            os.close(self._status)
            return self.returncode


class WarmProcess:
    """A running warm process. `fork` raises OSError where it fails, and FrameTimeout; it is gone then."""

    def __init__(self, environment: _Environment) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
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
            self.end()
            raise FrameTimeout from None
        except OSError:
            self.end()
            raise
        finally:
            os.close(status)
            if ours >= 0:
                os.close(ours)

    def end(self) -> None:
        self._control.close()
        self._process.kill()
        self._process.wait()


_running: dict[tuple[int, _Environment], WarmProcess] = {}
_lock = threading.Lock()


def fork_child(
    module: str,
    environment: Mapping[str, str],
    configuration: Mapping[str, Any],
    descriptors: Sequence[int],
    start_seconds: float,
) -> ForkedProcess | None:
    """Returns a child of the warm process for this environment, or None where it must be started by itself.

    `descriptors`: those that forking.DESCRIPTORS names but for the last. Raises FrameTimeout.
    """
    if not AVAILABLE:
        return None
    key = os.getpid(), tuple(sorted(environment.items()))  # a fork of this process is not the warm one's parent
    with _lock:
        for _ in range(ATTEMPTS):
            try:
                if key not in _running:
                    _running[key] = WarmProcess(key[1])
                return _running[key].fork(module, configuration, descriptors, time.monotonic() + start_seconds)
            except FrameTimeout:
                _running.pop(key, None)
                raise
            except OSError:
                _running.pop(key, None)
    return None


def list_warm_processes() -> list[int]:
    """Returns the process ids of this process's warm processes."""
    return [warm.pid for (parent, _), warm in _running.items() if parent == os.getpid()]


@atexit.register
def end_warm_processes() -> None:
    """Ends those of this process; their children end too. It waits for no start that is under way."""
    for key in [key for key in list(_running) if key[0] == os.getpid()]:
        _running.pop(key).end()
