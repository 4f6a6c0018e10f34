"""Files that survive kill -9: written to a temporary file and renamed. Synced files survive a power cut too."""

import errno
import fcntl
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from contracts import private_folder
from gradmarket.market.errors import Conflict
from graphdoc.encoding import Bytes

LOCK: Final = "lock"
CARDS: Final = "cards.json"
PAUSES_S: Final = (0.01, 0.05, 0.0)
"""Seconds after each failed try to lock a folder: `in_use` holds the lock for a moment, a worker while it runs."""


def write_file_atomically(path: Path, data: Bytes, synced: bool = True) -> None:
    """Replaces `path` by `data` atomically: after a crash it holds either the old bytes or the new ones.

    Only the owner may read it. Without `synced`, this holds for a crash of the process only; syncing takes some
    milliseconds. Writers of one folder take turns, but on NFS. Raises OSError with the path, as on a full disk, and
    leaves nothing beside it then.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f".{path.name}.new")
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # NFS locks only what is open for writing, as no folder is
            fcntl.flock(folder, fcntl.LOCK_EX)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                if synced:
                    file.flush()
                    os.fsync(file.fileno())
            beside.replace(path)
        except OSError as error:
            beside.unlink(missing_ok=True)
            error.filename = str(path)
            raise
        if synced:
            os.fsync(folder)
    finally:
        os.close(folder)


def append_line(path: Path, line: bytes) -> None:
    """Appends one line in one write; only the owner may read it.

    It survives a crash of the process, not a power cut. Raises OSError with the path on a full disk, and leaves no part
    of the line then: the next one would go on in it.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        before = os.fstat(descriptor).st_size
        if os.write(descriptor, line) < len(line):
            os.ftruncate(descriptor, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(descriptor)


def record_cards(folder: Path, cards: Mapping[str, str]) -> None:
    """Records the uuid of each card on which the worker of the folder computes, by its device."""
    write_file_atomically(folder / CARDS, json.dumps(cards).encode(), synced=False)


def lock_worker_folder(folder: Path) -> BinaryIO:
    """Locks the folder for one worker while the file stays open; raises Conflict if another worker holds the lock."""
    private_folder(folder)
    file = (folder / LOCK).open("wb")
    for pause in PAUSES_S:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(pause)
        else:
            return file
    file.close()
    raise Conflict(f"another worker uses {folder}", "end it first with Ctrl-C, or name another folder with --data")
