"""Downloads on disk by digest, the least recently used thrown out first when they take more than was allowed."""

import os
from pathlib import Path

from blake3 import blake3

from gradmarket.market.terms import Digest
from gradmarket.market.wire import hash_of
from gradmarket.worker.problems import DownloadRefused


class Cache:
    """`limit` in bytes. Files that are still being downloaded end in `.part`."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self.limit = limit
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
        except FileNotFoundError:
            return None
        if blake3(data).digest() != hash_of(digest):
            path.unlink()
            return None
        os.utime(path)
        return data

    def keep(self, digest: Digest) -> None:
        """Turns the finished, checked `.part` into the file, and makes room by throwing out older ones."""
        path = self.path(digest)
        self.part(digest).replace(path)
        self.make_room(0, keeping=path)

    def make_room(self, size: int, keeping: Path | None = None) -> None:
        """Throws out old files until `size` bytes more fit; raises DownloadRefused where they never can."""
        if size > self.limit:
            raise DownloadRefused(f"{size} bytes are more than the cache may take ({self.limit})")
        files = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in self._folder.iterdir())
        taken = sum(length for _, length, _ in files)
        for _, length, path in files:
            if taken + size <= self.limit:
                return
            if path != keeping:
                path.unlink()
                taken -= length
