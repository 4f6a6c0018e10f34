"""A cache of downloads on disk, named by digest; evicts the least recently used files beyond its limit."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blake3 import blake3

from gradmarket.compute.download_errors import DownloadFailed, DownloadRefused
from gradmarket.market.terms import Digest
from gradmarket.market.wire import hash_of


class Cache:
    """Files by digest, at most `limit` bytes. Unfinished downloads end in `.part` and are resumed after a restart."""

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

    def read(self, digest: Digest) -> bytes | None:
        """Returns the bytes after checking their digest, or None if there is no such file.

        Deletes a file with wrong bytes.
        """
        path = self.path(digest)
        try:
            data = path.read_bytes()
            os.utime(path)
        except FileNotFoundError:
            return None
        if blake3(data).digest() != hash_of(digest):
            path.unlink(missing_ok=True)
            return None
        return data

    @contextmanager
    def filling(self, digest: Digest, length: int) -> Iterator[Path]:
        """Yields the path of the `.part` file, with room for `length` bytes; it is not evicted until the block ends."""
        part = self.part(digest)
        self.make_room(part, length)
        try:
            yield part
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

    def keep(self, digest: Digest) -> None:
        """Renames the finished and checked `.part` file to its final name."""
        self.part(digest).replace(self.path(digest))

    def _throw_out(self, allowed: int, but: Path) -> None:
        """Deletes the oldest files until all files except `but` take at most `allowed` bytes."""
        files = sorted((path.stat().st_mtime, path) for path in self._folder.iterdir() if path != but)
        sizes = {path: max(path.stat().st_size, self._filling.get(path, 0)) for _, path in files}
        taken = sum(sizes.values())
        for _, path in files:
            if taken <= allowed:
                return
            if path not in self._filling:
                path.unlink()
                taken -= sizes[path]
        if taken > allowed:
            raise DownloadFailed("the downloads under way leave no room in the cache")
