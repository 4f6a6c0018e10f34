"""Downloads on disk by digest, the least recently used thrown out first when they take more than was allowed."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blake3 import blake3

from gradmarket.market.terms import Digest
from gradmarket.market.wire import hash_of
from gradmarket.worker.problems import DownloadFailed, DownloadRefused


class Cache:
    """`limit` in bytes. Files that are still being downloaded end in `.part`; a killed worker's are resumed."""

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
        """The bytes, checked again; None where they are not here. Bytes that changed on disk are thrown away."""
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
        """The part, with room for `length` bytes; it is not thrown out until the block ends."""
        part = self.part(digest)
        self.make_room(part, length)
        try:
            yield part
        finally:
            with self._lock:
                self._filling.pop(part, None)

    def make_room(self, part: Path, length: int) -> None:
        """Throws out old files until a part that is being filled may have `length` bytes.

        Raises DownloadRefused where it never may, DownloadFailed where others that are being filled leave no room.
        """
        if length > self.limit:
            raise DownloadRefused(f"{length} bytes are more than the cache may take ({self.limit})")
        with self._lock:
            self._throw_out(self.limit - length, part)
            self._filling[part] = max(length, self._filling.get(part, 0))

    def keep(self, digest: Digest) -> None:
        """Turns the finished, checked `.part` into the file."""
        self.part(digest).replace(self.path(digest))

    def _throw_out(self, allowed: int, but: Path) -> None:
        """The oldest files first, until all but `but` take at most `allowed` bytes."""
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
            raise DownloadFailed("what is being downloaded leaves no room in the cache")
