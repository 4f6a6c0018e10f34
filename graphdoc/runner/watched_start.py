"""Watches a child's start of a card's driver, and records the calls and paths that the confinement refuses.

The kernel asks the watching process about each call (seccomp_unotify(2)); a path is read from the child's memory,
opened under Landlock nevertheless, and compared with the table of admitted.py.
"""

import array
import fcntl
import os
import platform
import select
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from graphdoc.runner.admitted import CALLS, READ_DIRECTORY, READ_FILE, TRUNCATE, WRITE_FILE, list_allowed_paths
from graphdoc.runner.confine import ask_watcher

_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_NOTICE: Final = "=QIIiIQ6Q"
_VERDICT: Final = "=QqiI"
_LET_PASS: Final = 1
_EPERM: Final = 1
_LONGEST: Final = 4096
Allowed = Sequence[tuple[str, int]]


@dataclass
class Refusals:
    """The refused calls and the refused paths that exist, each once, in the order of the attempts."""

    calls: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        calls = [f"the call {call}" for call in self.calls]
        return ", ".join([*calls, *(f"the path {path}" for path in self.paths)])


@dataclass
class Watch:
    """`descriptor` is the child's end, over which it hands the kernel's questions to this process."""

    descriptor: int
    refusals: Refusals


def ask_parent(descriptor: int) -> None:
    """Makes, in the child, the process at the other end of this descriptor decide from now on."""
    with socket.socket(fileno=os.dup(descriptor)) as parent:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        parent.sendmsg([b"?"], [(*rights, struct.pack("=i", ask_watcher()))])


@contextmanager
def watch_child(device: str, root: Path) -> Iterator[Watch]:
    """Decides for the child that gets the descriptor until the block ends; the refusals are complete then."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watch = Watch(theirs.fileno(), Refusals())
        allowed = list(list_allowed_paths(device, root))
        watcher = threading.Thread(target=_decide_calls, args=(ours, allowed, watch.refusals), daemon=True)
        watcher.start()
        try:
            yield watch
        finally:
            ours.shutdown(socket.SHUT_RDWR)
            watcher.join()


def _decide_calls(ours: socket.socket, allowed: Allowed, refusals: Refusals) -> None:
    _, rights, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(4))
    if not rights:
        return
    (listener,) = struct.unpack("=i", rights[0][2])
    with closing(os.fdopen(listener, "rb", buffering=0)):
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        while poll.poll()[0][1] & select.POLLIN:
            notice = array.array("B", bytes(struct.calcsize(_NOTICE)))
            with suppress(FileNotFoundError):  # the child ended meanwhile
                fcntl.ioctl(listener, _RECEIVE, notice)
                asked, process, _, call, _, _, *arguments = struct.unpack(_NOTICE, notice)
                verdict = _decide_call(process, call, arguments, allowed, refusals)
                fcntl.ioctl(listener, _SEND, struct.pack(_VERDICT, asked, 0, *verdict))


def _decide_call(
    process: int, call: int, arguments: Sequence[int], allowed: Allowed, refusals: Refusals
) -> tuple[int, int]:
    """Returns the error and the flag of the answer to the kernel; records a refusal."""
    calls = CALLS[platform.machine()]
    name = next((name for name, number in calls.opening.items() if number == call), "")
    if not name:
        known = {number: name for name, number in calls.forbidden.items()} | {calls.clone: "clone"}
        shown = ", ".join(f"{argument:#x}" for argument in arguments[:3])
        _note(refusals.calls, f"{known.get(call, call)}({shown})")
        return -_EPERM, 0
    at = arguments[0 if name == "open" else 1]
    flags = arguments[1 if name == "open" else 2]
    with suppress(OSError), open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
        path = os.path.join(os.sep, _read_memory(memory.fileno(), at, _LONGEST).partition(b"\0")[0].decode())
        if name == "openat2":
            (flags,) = struct.unpack("=Q", _read_memory(memory.fileno(), flags, 8))
        if os.path.lexists(path) and not is_admitted(path, flags, allowed):
            _note(refusals.paths, path)
    return 0, _LET_PASS


def _read_memory(memory: int, at: int, most: int) -> bytes:
    """Reads at most to the end of the page: the next one may be missing."""
    return os.pread(memory, min(most, 4096 - at % 4096), at) if most > 8 else os.pread(memory, most, at)


def _note(noted: list[str], one: str) -> None:
    if one not in noted:
        noted.append(one)


def is_admitted(path: str, flags: int, allowed: Allowed) -> bool:
    """Returns whether the table permits a process to open this path of its own with these flags of open(2)."""
    needed = {os.O_RDONLY: READ_FILE, os.O_WRONLY: WRITE_FILE}.get(flags & os.O_ACCMODE, READ_FILE | WRITE_FILE)
    if flags & os.O_DIRECTORY:
        needed = READ_DIRECTORY
    if flags & os.O_TRUNC:
        needed |= TRUNCATE
    if flags & os.O_PATH:
        return True
    real = path if path.startswith("/proc/self") else os.path.realpath(path)
    above = (real, *map(str, Path(real).parents))
    given = 0
    for one, rights in allowed:
        if one in above or (not one.startswith("/proc/self") and os.path.realpath(one) in above):
            given |= rights
    return needed & ~given == 0
