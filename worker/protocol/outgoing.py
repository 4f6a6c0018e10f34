"""Payloads being uploaded: a callback runs before the first byte of each leaves this process."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Final, cast


class _Outgoing(FileIO):
    """A file that calls `leaves` before each read.

    A client reads it only when connected and after sending the headers.
    """

    def __init__(self, path: Path, leaves: Callable[[], None]) -> None:
        super().__init__(path)
        self._leaves = leaves

    def read(self, size: int | None = -1) -> bytes | None:  # type: ignore[override]
        self._leaves()
        return super().read(-1 if size is None else size)


@dataclass(frozen=True)
class Payload:
    """The file at `path`; `leaves` is called before any of its bytes is sent, and its errors stop the upload."""

    path: Path
    leaves: Callable[[], None]

    def open(self) -> BinaryIO:
        """Raises OSError if the file is gone."""
        return cast(BinaryIO, _Outgoing(self.path, self.leaves))


CHUNK: Final = 1 << 16


@dataclass(frozen=True)
class FramedPayloads:
    """A request and the payloads that follow it, one after the other."""

    head: bytes
    payloads: Sequence[Payload]

    @property
    def length(self) -> int:
        """Raises OSError if a file is gone."""
        return len(self.head) + sum(payload.path.stat().st_size for payload in self.payloads)

    @contextmanager
    def open(self) -> Iterator[Iterator[bytes]]:
        yield self._chunks()

    def _chunks(self) -> Iterator[bytes]:
        yield self.head
        for payload in self.payloads:
            with payload.open() as file:
                while chunk := file.read(CHUNK):
                    yield chunk
