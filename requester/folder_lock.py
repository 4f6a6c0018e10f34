"""Keeps a data folder to one service: a second one would take over its address and its stages."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from contracts import OTHERS, private_folder
from contracts.processes import has_open_file
from gradmarket.market.errors import Conflict, Refused

LOCK: Final = "serve.lock"
"""Has the process id of the service that locked it last."""


def find_serving_process(folder: Path) -> int | None:
    """Returns the id of the process that serves the folder; None without one."""
    try:
        holder = int((folder / LOCK).read_text())
    except (FileNotFoundError, ValueError):
        return None
    return holder if has_open_file(holder, folder / LOCK) else None


@contextmanager
def lock_data_folder(folder: Path, alone: bool, hidden: int = OTHERS) -> Iterator[None]:
    """Locks the folder for this process, and makes it if needed; the lock ends with the process, even a killed one.

    `hidden`: the permissions of a file's mode that others lack there. Not `alone`, the folder is shared with others
    that are not either. Raises Conflict if the folder is taken, Refused if it cannot be written.
    """
    path = folder / LOCK
    try:
        private_folder(folder, hidden)
        file = path.open("a+")
    except OSError as error:
        remedy = "name another one with --data or GRADMARKET_DATA"
        raise Refused(f"the data folder {folder} cannot be written: {error.strerror}", remedy) from error
    with file:
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = path.read_text().strip() or "unknown"
            remedy = f"stop it with `kill {holder}`, or give this one a folder of its own with --data"
            raise Conflict(f"process {holder} serves {folder} already", remedy) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
