"""Files that survive kill -9: written beside and renamed; what is money is synced too, and survives a power cut."""

import fcntl
import os
from pathlib import Path
from typing import BinaryIO

from gradmarket.market.errors import Conflict


def write(path: Path, data: bytes, synced: bool = True) -> None:
    """Replaces `path` by `data` at once: after a crash it holds either the old bytes or the new ones.

    Its owner alone may read it. Without `synced` (some milliseconds) that holds for this process's crash only.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        if synced:
            file.flush()
            os.fsync(file.fileno())
    beside.replace(path)
    if synced:
        _sync_folder(path.parent)


def append(path: Path, line: bytes) -> None:
    """Adds one line at once; its owner alone may read it. It survives this process's crash, not a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(folder: Path) -> BinaryIO:
    """Keeps a second worker out of the folder while the file stays open; raises Conflict where one is in it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = (folder / "lock").open("wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise Conflict(f"another worker uses {folder}; give this one a folder of its own (--data)") from error
    return file
