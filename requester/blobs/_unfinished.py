"""Uploads that broke off, in files: each may be continued where it ended, for a while."""

import fcntl
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from blake3 import blake3

from gradmarket.market.errors import Conflict

KEPT_S: Final = 3600.0
"""Seconds for which an idle upload is kept: several times the longest that most jobs wait for one."""
BUSY: Final = "another request is bringing it: wait for the answer to that one"


class UnfinishedUploads:
    """One file for each upload, named by hashes of its owner and of its name, and locked while it is written.

    `limit`: bytes kept in all, but at most half of the disk's free space without them; beyond that the owner with the
    most of them loses its oldest first. Several processes may share the folder.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._limit = folder, limit
        folder.mkdir(parents=True, exist_ok=True)

    def received(self, owner: str, name: str) -> int:
        """Returns the bytes of the owner's upload from which it may go on; 0 if it is unknown, or a blob by now."""
        stat = _find_stat(self._build_upload_path(owner, name))
        return stat.st_size if stat is not None and stat.st_nlink == 1 else 0

    @contextmanager
    def opened(self, owner: str, name: str, start: int) -> Iterator[BinaryIO]:
        """Opens the upload to write from byte `start` on; later bytes are cut off.

        After the block it is deleted; it is kept where the block raises. Raises Conflict where fewer bytes are stored,
        or while another request writes it.
        """
        path = self._build_upload_path(owner, name)
        with path.open("ab") as file:
            # another has the lock, or has just deleted the file
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Conflict(BUSY) from error
            if _drop_stored(file, path) or not lies_at(file, path):
                raise Conflict(BUSY)
            there = os.fstat(file.fileno()).st_size
            if there < start:
                _unlink_empty(path, there)
                raise Conflict(f"{there} bytes are stored, not {start}: continue from {there}")
            file.truncate(start)
            try:
                yield file
            except BaseException:
                file.flush()
                _drop_stored(file, path)
                _unlink_empty(path, os.fstat(file.fileno()).st_size)
                raise
            path.unlink(missing_ok=True)

    def delete_stale_uploads(self) -> None:
        """Deletes uploads that have gone stale, and those beyond the limit."""
        found = [(path, stat) for path in self._folder.iterdir() if (stat := _find_stat(path)) is not None]
        of_owner = defaultdict[str, list[tuple[float, int, Path]]](list)
        for path, stat in found:
            if stat.st_mtime < time.time() - KEPT_S:
                _unlink_unless_written(path)
            else:
                of_owner[path.name.partition("-")[0]].append((stat.st_mtime, stat.st_size, path))
        total = sum(size for files in of_owner.values() for _, size, _ in files)
        for files in of_owner.values():
            files.sort(reverse=True)
        limit = min(self._limit, (shutil.disk_usage(self._folder).free + total) // 2)
        while total > limit and any(of_owner.values()):
            most = max(of_owner.values(), key=lambda files: sum(size for _, size, _ in files))
            _, size, path = most.pop()
            total -= size if _unlink_unless_written(path) else 0

    def _build_upload_path(self, owner: str, name: str) -> Path:
        hashes = (blake3(text.encode()).hexdigest()[:32] for text in (owner, name))
        return self._folder / "-".join(hashes)


def lies_at(file: BinaryIO, path: Path) -> bool:
    """Returns whether the open file is still the one at `path`: it may be deleted between its opening and its lock."""
    there = _find_stat(path)
    return there is not None and os.path.samestat(there, os.fstat(file.fileno()))


def _drop_stored(file: BinaryIO, path: Path) -> bool:
    """Returns whether the upload was stored as a blob, which has the same bytes on the disk: to continue it would
    change the blob. It is an upload no more.
    """
    stored = os.fstat(file.fileno()).st_nlink > 1
    if stored:
        path.unlink(missing_ok=True)
    return stored


def _unlink_empty(path: Path, length: int) -> None:
    if length == 0:
        path.unlink(missing_ok=True)


def _unlink_unless_written(path: Path) -> bool:
    """Returns whether the file is gone: one that is being written stays."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not lies_at(file, path):
                return False
            path.unlink()
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return True
    return True


def _find_stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None
