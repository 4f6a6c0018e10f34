"""A payload being uploaded: a callback runs before its first byte leaves this process."""

from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO, cast


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
