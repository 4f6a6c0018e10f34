"""A child of a warm process that attacks its parent, its sisters and the machine."""

import ctypes
import errno
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from graphdoc.runner import serving
from graphdoc.runner.serving import Request


def list_attempts(request: Request) -> Iterator[tuple[str, Callable[[], object]]]:
    parent, sister = os.getppid(), request["sister"]
    yield "a signal to the warm process", lambda: os.kill(parent, signal.SIGTERM)
    yield "a signal to a sister", lambda: os.kill(sister, signal.SIGTERM)
    yield "a sister by a descriptor", lambda: signal.pidfd_send_signal(os.pidfd_open(sister), signal.SIGTERM)
    yield "the warm process's memory", lambda: os.open(f"/proc/{parent}/mem", os.O_RDONLY)
    yield "a sister's memory", lambda: read_memory_of(sister)
    yield "a sister's descriptors", lambda: os.listdir(f"/proc/{sister}/fd")
    yield "a secret", lambda: Path("/etc/passwd").read_text()
    yield "a new file", lambda: Path("/tmp/gradmarket-hostile").write_text("")
    yield "a socket", socket.socket
    yield "another child", os.fork
    yield "a program", lambda: os.execv("/bin/true", ["true"])


def read_memory_of(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.process_vm_readv(pid, None, 0, None, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), errno.errorcode[ctypes.get_errno()])


def try_all(request: Request) -> dict[str, str]:
    return {name: describe_outcome(attempt) for name, attempt in list_attempts(request)}


def describe_outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return type(error).__name__
    return "done"


def serve() -> None:
    serving.serve_requests(serving.parse_configuration(), lambda: "hostile", {"try": try_all})
