"""A cache of downloads on disk, named by digest; evicts the least recently used files beyond its limit."""

import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from blake3 import blake3

from gradmarket.market.terms import Digest
from gradmarket.market.wire.poll import hash_of
from gradmarket.network import DownloadFailed, DownloadRefused
from graphdoc.encoding import Bytes

LOCK: Final = ".lock"
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


class Cache:
    """Files by digest, at most `limit` bytes. Unfinished downloads end in `.part` and are resumed after a restart.

    Several processes may have one folder: each file is checked by its digest whenever it is read.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self.limit = limit
        self._lock = threading.RLock()
        self._filling: dict[Path, int] = {}
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path(self, digest: Digest) -> Path:
        return self._folder / hash_of(digest).hex()

    def part(self, digest: Digest) -> Path:
        return self._folder / f"{hash_of(digest).hex()}.part"

    def read(self, digest: Digest) -> memoryview | None:
        """Returns the mapped bytes after checking their digest, or None if there is no such file.

        Deletes a file with wrong bytes. An evicted file stays on disk until its last mapping is closed.
        """
        path = self.path(digest)
        try:
            data = map_cached_file(path)
            os.utime(path)
        except FileNotFoundError:
            return None
        if blake3(data).digest() != hash_of(digest):
            path.unlink(missing_ok=True)
            return None
        return data

    @contextmanager
    def alone(self, digest: Digest) -> Iterator[None]:
        """Holds the lock for getting the bytes with this digest; other processes with this folder wait for it."""
        path = self._lock_of(self.path(digest))
        while True:
            with path.open("ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                # Checks that the name still leads to the open file
                there, opened = _stat_file(path), os.fstat(file.fileno())
                same_file = there is not None and (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino)
                if not same_file:
                    continue  # the previous holder has deleted it
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return

    @staticmethod
    def _lock_of(path: Path) -> Path:
        return path.with_suffix(LOCK)

    @contextmanager
    def open_part(self, digest: Digest, length: int) -> Iterator[Path]:
        """Yields the path of the `.part` file, with room for `length` bytes; it is not evicted until the block ends.

        Raises OSError with the path where the disk is full.
        """
        part = self.part(digest)
        self.make_room(part, length)
        try:
            yield part
        except OSError as error:
            if error.errno in NO_ROOM:
                error.filename = str(part)
            raise
        finally:
            with self._lock:
                self._filling.pop(part, None)

    def make_room(self, part: Path, length: int) -> None:
        """Evicts old files until the `.part` file of a running download may have `length` bytes.

        Raises DownloadRefused if `length` exceeds the limit, DownloadFailed if other running downloads leave no room.
        """
        if length > self.limit:
            raise DownloadRefused(f"{length} bytes are more than the cache may take ({self.limit})")
        with self._lock:
            self._throw_out(self.limit - length, part)
            self._filling[part] = max(length, self._filling.get(part, 0))

    @property
    def newest(self) -> float:
        """Returns when the newest file was read or written, in Unix time; 0 where there is none."""
        stats = (_stat_file(path) for path in self._folder.iterdir() if path.suffix != LOCK)
        return max((stat.st_mtime for stat in stats if stat is not None), default=0.0)

    def put(self, digest: Digest, data: Bytes) -> None:
        """Keeps bytes that were made here under their digest, where there is room for them."""
        with suppress(DownloadRefused, DownloadFailed), self.open_part(digest, len(data)) as part:
            part.write_bytes(data)
            self.finish_part(digest)

    def finish_part(self, digest: Digest) -> memoryview:
        """Renames the finished and checked `.part` file to its final name; returns its bytes, mapped."""
        data = map_cached_file(self.part(digest))
        self.part(digest).replace(self.path(digest))
        return data

    def _throw_out(self, allowed: int, but: Path) -> None:
        """Deletes the oldest files until all files except `but` take at most `allowed` bytes."""
        found = {path: _stat_file(path) for path in self._folder.iterdir() if path != but and path.suffix != LOCK}
        files = {path: stat for path, stat in found.items() if stat is not None}
        sizes = {path: max(stat.st_size, self._filling.get(path, 0)) for path, stat in files.items()}
        taken = sum(sizes.values())
        for path in sorted(files, key=lambda path: files[path].st_mtime):
            if taken <= allowed:
                return
            if path not in self._filling and not self._filled_elsewhere(path):
                path.unlink(missing_ok=True)
                taken -= sizes[path]
        if taken > allowed:
            raise DownloadFailed("the downloads under way leave no room in the cache")

    def _filled_elsewhere(self, part: Path) -> bool:
        """Returns whether a process, maybe this one, is getting the bytes of a `.part` file just now."""
        try:
            with self._lock_of(part).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return part.suffix == ".part"
        return False


def map_cached_file(path: Path) -> memoryview:
    """Returns the file's bytes without copying them. Raises FileNotFoundError."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _stat_file(path: Path) -> os.stat_result | None:
    """Returns None where another process has deleted the file."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None
