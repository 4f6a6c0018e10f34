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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphdoc.runner import landlock

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_SECCOMP: Final = 22
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP_MODE_FILTER: Final = 2
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_CLONE_THREAD: Final = 0x10000

_ALLOW: Final = 0x7FFF0000
_EPERM: Final = 0x00050000 | 1
_ENOSYS: Final = 0x00050000 | 38
_LOAD: Final = 0x20
_EQUAL: Final = 0x15
_AT_LEAST: Final = 0x35
_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16

_X32_CALLS: Final = 0x40000000
_FORBIDDEN_EVERYWHERE: Final = (424, 425, 426, 427)
"""pidfd_send_signal, io_uring_setup, io_uring_enter, io_uring_register"""


@dataclass(frozen=True)
class _Calls:
    """The system call numbers of one processor architecture."""

    architecture: int
    clone: int
    clone3: int
    forbidden: tuple[int, ...]


_CALLS: Final = {
    # socket connect bind listen socketpair, fork vfork execve execveat, kill ptrace process_vm_readv process_vm_writev,
    # mount unshare setns, keyctl bpf userfaultfd perf_event_open
    "x86_64": _Calls(
        0xC000003E, 56, 435, (41, 42, 49, 50, 53, 57, 58, 59, 322, 62, 101, 310, 311, 165, 272, 308, 250, 321, 323, 298)
    ),
    "aarch64": _Calls(
        0xC00000B7, 220, 435, (198, 203, 200, 201, 199, 221, 281, 129, 117, 270, 271, 40, 97, 268, 219, 280, 282, 241)
    ),
}


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


MEASURES: Final = ("network", "files", "calls")
"""What a machine may offer: no network at all; read access to code and libraries only; and a system call filter that
allows no programs, processes or sockets, and no signals to other processes."""


def confine_process(parent: int, follow_parent: bool, device: str, memory_bytes: int) -> list[str]:
    """Applies the measures that this machine offers and returns their names.

    Must run after torch is imported and before any thread is started. `follow_parent`: also die with the thread that
    started this process, so that thread must live on. On the CPU, `memory_bytes` may be mapped beyond what is mapped
    now (CUDA reserves far more than it uses).
    """
    if sys.platform != "linux":
        return []
    if follow_parent:
        _load_libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
    _limit_resources(device, memory_bytes)
    calls = _CALLS.get(platform.machine())
    measures = {
        "network": any(_load_libc().unshare(flags) == 0 for flags in (_CLONE_NEWUSER | _CLONE_NEWNET, _CLONE_NEWNET)),
        "files": _load_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 and landlock.restrict_files(device),
        "calls": calls is not None and _install_filter(_build_instructions(calls)),
    }
    return [name for name in MEASURES if measures[name]]


def _limit_resources(device: str, memory_bytes: int) -> None:
    _set_limit(resource.RLIMIT_CORE, 0)
    _set_limit(resource.RLIMIT_FSIZE, memory_bytes)
    _set_limit(resource.RLIMIT_NOFILE, 256)
    if device == "cpu":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        _set_limit(resource.RLIMIT_AS, pages * resource.getpagesize() + memory_bytes)


def _load_libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _set_limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (ceiling, ceiling))


def _install_filter(instructions: Sequence[bytes]) -> bool:
    """Installs a permanent seccomp filter, after new privileges are given up; forbidden calls fail with EPERM."""
    code = b"".join(instructions)
    program = _FilterProgram(len(instructions), ctypes.c_char_p(code))
    libc = _load_libc()
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0)


def _build_instructions(calls: _Calls) -> list[bytes]:
    """Returns a filter that forbids the listed calls, other architectures' calls, and a clone that is not a thread."""
    forbidden = [*_FORBIDDEN_EVERYWHERE, *calls.forbidden]
    return [
        _encode_instruction(_LOAD, _ARCHITECTURE_AT),
        _encode_instruction(_EQUAL, calls.architecture, then=1),
        _encode_instruction(_RETURN, _EPERM),
        _encode_instruction(_LOAD, _NUMBER_AT),
        *_build_test_and_return(_AT_LEAST, _X32_CALLS, _EPERM),
        *_build_test_and_return(_EQUAL, calls.clone3, _ENOSYS),
        *(step for call in forbidden for step in _build_test_and_return(_EQUAL, call, _EPERM)),
        _encode_instruction(_EQUAL, calls.clone, then=1),
        _encode_instruction(_RETURN, _ALLOW),
        _encode_instruction(_LOAD, _FIRST_ARGUMENT_AT),
        *_build_test_and_return(_ANY_BIT, _CLONE_THREAD, _ALLOW),
        _encode_instruction(_RETURN, _EPERM),
    ]


def _build_test_and_return(test: int, value: int, result: int) -> list[bytes]:
    """Returns instructions that return `result` if the test holds, and otherwise continue."""
    return [_encode_instruction(test, value, otherwise=1), _encode_instruction(_RETURN, result)]


def _encode_instruction(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    """Encodes one instruction of the classic packet filter: code, jumps, operand."""
    return struct.pack("=HBBI", code, then, otherwise, value)
