"""Restricts a child by limits of the operating system, before a stranger's document is read.

Defence in depth: the document's language cannot reach any of this. Measures that the machine does not offer are
skipped. Linux only; elsewhere only the watch on the pipe and the parent's time limit remain.
"""

import ctypes
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from graphdoc.runner import landlock
from graphdoc.runner.admitted import CALLS, DRIVER_CALLS, DRIVER_SOCKET, Calls, list_allowed_paths

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_SECCOMP: Final = 22
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP_MODE_FILTER: Final = 2
_SECCOMP_SET_MODE_FILTER: Final = 1
_EVERY_THREAD, _NEW_LISTENER = 1, 8
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_CLONE_THREAD: Final = 0x10000

_ALLOW: Final = 0x7FFF0000
_EPERM: Final = 0x00050000 | 1
_ENOSYS: Final = 0x00050000 | 38
_ASK_WATCHER: Final = 0x7FC00000
_LOAD: Final = 0x20
_EQUAL: Final = 0x15
_AT_LEAST: Final = 0x35
_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT, _SECOND_ARGUMENT_AT = 0, 4, 16, 24

_X32_CALLS: Final = 0x40000000


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


MEASURES: Final = ("network", "files", "calls")
"""Measures that a machine may offer: no network at all; read access to code and libraries only; and a system call
filter that allows no programs, processes or sockets, and no signals to other processes."""


def confine_process(
    parent: int,
    follow_parent: bool,
    device: str,
    memory_bytes: int,
    root: Path = Path("/"),
    measures: Sequence[str] = MEASURES,
) -> list[str]:
    """Applies the measures that this machine offers, and returns their names.

    Must run after torch is imported and before any thread is started. `follow_parent`: also die with the thread that
    started this process, so that thread must live on. On the CPU, `memory_bytes` may be mapped beyond the present
    mappings (CUDA reserves far more than it uses). A card's driver may still start; `forbid_driver_calls` ends that.
    """
    if sys.platform != "linux":
        return []
    if follow_parent:
        _load_libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
    _set_limit(resource.RLIMIT_CORE, 0)
    _set_limit(resource.RLIMIT_FSIZE, memory_bytes)
    _set_limit(resource.RLIMIT_NOFILE, 256)
    if device == "cpu":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        _set_limit(resource.RLIMIT_AS, pages * resource.getpagesize() + memory_bytes)
    calls = CALLS.get(platform.machine())
    libc = _load_libc()
    unprivileged = libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    applied: dict[str, Callable[[], bool]] = {
        "network": lambda: any(libc.unshare(flags) == 0 for flags in (_CLONE_NEWUSER | _CLONE_NEWNET, _CLONE_NEWNET)),
        "files": lambda: unprivileged and landlock.restrict_files(list_allowed_paths(device, root)),
        "calls": lambda: calls is not None and _install_filter(build_instructions(calls, device != "cpu")),
    }
    return [name for name in MEASURES if name in measures and applied[name]()]


def forbid_driver_calls() -> bool:
    """Forbids every thread of this process the calls that only the start of a card's driver needs."""
    calls = CALLS.get(platform.machine())
    if calls is None:
        return False
    program = _build_program(build_instructions(calls, driver=False))
    arguments = (_SECCOMP_SET_MODE_FILTER, _EVERY_THREAD, ctypes.byref(program))
    return bool(_load_libc().syscall(calls.seccomp, *arguments) == 0)


def ask_watcher() -> int:
    """Makes another process decide on each forbidden call and each that opens a file; see watched_start.py.

    Returns the descriptor for its questions. Raises OSError. New privileges are given up before.
    """
    calls = CALLS[platform.machine()]
    program = _build_program(build_instructions(calls, True, _ASK_WATCHER, tuple(calls.opening.values())))
    arguments = (_SECCOMP_SET_MODE_FILTER, _NEW_LISTENER, ctypes.byref(program))
    descriptor = int(_load_libc().syscall(calls.seccomp, *arguments))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "the filter of system calls was refused")
    return descriptor


def _load_libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _set_limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (ceiling, ceiling))


def _install_filter(instructions: Sequence[bytes]) -> bool:
    """Installs a permanent seccomp filter, after new privileges are given up; forbidden calls fail with EPERM."""
    program = _build_program(instructions)
    libc = _load_libc()
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0)


def _build_program(instructions: Sequence[bytes]) -> _FilterProgram:
    return _FilterProgram(len(instructions), ctypes.c_char_p(b"".join(instructions)))


def build_instructions(calls: Calls, driver: bool, refusal: int = _EPERM, watched: Sequence[int] = ()) -> list[bytes]:
    """Returns a filter that forbids the listed calls, other architectures' calls, and a clone that is not a thread.

    `driver`: except for the calls of a card's driver at its start. `watched` calls are answered with `refusal` as well.
    """
    forbidden = [number for name, number in calls.forbidden.items() if not (driver and name in DRIVER_CALLS)]
    return [
        _encode_instruction(_LOAD, _ARCHITECTURE_AT),
        _encode_instruction(_EQUAL, calls.architecture, then=1),
        _encode_instruction(_RETURN, _EPERM),
        _encode_instruction(_LOAD, _NUMBER_AT),
        *_build_test_and_return(_AT_LEAST, _X32_CALLS, _EPERM),
        *_build_test_and_return(_EQUAL, calls.clone3, _ENOSYS),
        *(step for call in (*forbidden, *watched) for step in _build_test_and_return(_EQUAL, call, refusal)),
        *(_build_socket_rule(calls.forbidden["socket"], refusal) if driver else ()),
        _encode_instruction(_EQUAL, calls.clone, then=1),
        _encode_instruction(_RETURN, _ALLOW),
        _encode_instruction(_LOAD, _FIRST_ARGUMENT_AT),
        *_build_test_and_return(_ANY_BIT, _CLONE_THREAD, _ALLOW),
        _encode_instruction(_RETURN, refusal),
    ]


def _build_socket_rule(number: int, refusal: int) -> list[bytes]:
    """Returns instructions that decide on `socket`, by its two first arguments, and continue for any other call."""
    domain, kind = DRIVER_SOCKET
    rule = [
        _encode_instruction(_LOAD, _FIRST_ARGUMENT_AT),
        _encode_instruction(_EQUAL, domain, then=1),
        _encode_instruction(_RETURN, refusal),
        _encode_instruction(_LOAD, _SECOND_ARGUMENT_AT),
        *_build_test_and_return(_EQUAL, kind, _ALLOW),
        _encode_instruction(_RETURN, refusal),
    ]
    return [_encode_instruction(_EQUAL, number, otherwise=len(rule)), *rule]


def _build_test_and_return(test: int, value: int, result: int) -> list[bytes]:
    """Returns instructions that return `result` if the test holds, and otherwise continue."""
    return [_encode_instruction(test, value, otherwise=1), _encode_instruction(_RETURN, result)]


def _encode_instruction(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    """Encodes one instruction of the classic packet filter: code, jumps, operand."""
    return struct.pack("=HBBI", code, then, otherwise, value)
