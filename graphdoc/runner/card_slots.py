"""A card's memory among the processes that compute on it: each locks as many slots of one file as its step may take.

A lock is of an open file description (fcntl(2), F_OFD_SETLK), so that the system frees those of a child that ends. A
process that waits stands at the gate, one at a time; one that has slots gives them back when it idles, and before its
next step where another stands there. Programs that know nothing of this take a card's memory as they like.
"""

import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

SLOT: Final = 2**28
"""Bytes of a card for each slot."""
SHARED: Final = 0.9
"""The share of a card that the slots make up: each process takes half a gibibyte without them, the driver's own."""
PAUSE_S: Final = 0.02
"""Seconds between two looks of a process that waits."""
WAITS: Final = {"waits": "card"}
"""A child's message that its answer waits for other processes' slots."""
_GATE: Final = 0
_BUSY: Final = (errno.EAGAIN, errno.EACCES)
_FLOCK: Final = "hhqqi"
"""`struct flock` of a 64-bit Linux: kind, whence, start, length, process."""


def open_slots(path: str) -> int | None:
    """Returns a descriptor of the file, made where it is missing; None where this user may not, or none is named.

    Users of one machine share the file, and locking it takes the right to write: nothing is ever written there.
    """
    if not path:
        return None
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        if Path(path).exists():
            return os.open(path, flags)
        descriptor = os.open(path, flags | os.O_CREAT, 0o666)
        os.fchmod(descriptor, 0o666)  # whatever the umask is
    except OSError:
        return None
    return descriptor


class CardSlots:
    """The slots of this process. Where the system has no such locks, it takes memory without."""

    def __init__(self, descriptor: int, card_bytes: int) -> None:
        self._descriptor = descriptor
        self._slots = range(_GATE + 1, _GATE + 1 + int(SHARED * card_bytes) // SLOT)
        self._held: list[int] = []

    def holds(self, size: int) -> bool:
        """Returns whether this process has slots for so many bytes, or all of them."""
        return len(self._held) >= self._count(size)

    def is_awaited(self) -> bool:
        """Returns whether another process waits for slots. It takes no lock, so that looking is not waiting."""
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _GATE, 1, 0)
        try:
            answered = fcntl.fcntl(self._descriptor, fcntl.F_OFD_GETLK, asked)
        except OSError:  # of a file system without locks: nobody waits
            return False
        return bool(struct.unpack(_FLOCK, answered)[0] != fcntl.F_UNLCK)

    def take(self, size: int, on_wait: Callable[[], object] = lambda: None) -> None:
        """Waits until this process has slots for so many bytes, or all of them. It must have freed its memory before,
        unless it holds them already. `on_wait` is called once, where others hold them."""
        if self.holds(size):
            return
        self.give_back()
        waits = False
        while not self._lock(_GATE):
            waits = self._pause(waits, on_wait)
        while True:
            for slot in self._slots:
                if not self.holds(size) and slot not in self._held and self._lock(slot):
                    self._held.append(slot)
            if self.holds(size):
                break
            waits = self._pause(waits, on_wait)
        self._unlock(_GATE)

    def give_back(self) -> None:
        """Gives all slots back; its memory must be free."""
        while self._held:
            self._unlock(self._held.pop())

    def _pause(self, waited: bool, on_wait: Callable[[], object]) -> bool:
        if not waited:
            on_wait()
        time.sleep(PAUSE_S)
        return True

    def _count(self, size: int) -> int:
        return min(len(self._slots), -(-size // SLOT))

    def _lock(self, place: int) -> bool:
        try:
            self._set_lock(fcntl.F_WRLCK, place)
        except OSError as error:
            return error.errno not in _BUSY
        return True

    def _unlock(self, place: int) -> None:
        try:
            self._set_lock(fcntl.F_UNLCK, place)
        except OSError:  # of a file system without locks: none was taken
            return

    def _set_lock(self, kind: int, place: int) -> None:
        """Locks or frees one byte."""
        fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, place, 1, 0))
