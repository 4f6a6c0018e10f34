"""Where bytes lie, by their digest. One store a file: the file's name is the name in the settings.

A store may be one that others reach past the service: then readers are sent to it by an address that serves a blob
for a while, and who owes a payload is told an address that takes exactly so many bytes. What comes that way counts
only once the service has read it.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from gradmarket.market import plugins
from gradmarket.market.gradient.arrays import Bytes
from gradmarket.market.terms import Digest
from gradmarket.requester.blobs.disk import Incoming
from gradmarket.requester.settings import RequesterSettings


class Blobs(Protocol):
    """Blobs never change. Every method that takes a digest raises NotFound where there is no such blob."""

    reached_past_us: bool
    """Whether `door` gives addresses."""

    def has(self, digest: Digest) -> bool: ...

    def length(self, digest: Digest) -> int:
        """In bytes."""

    def read(self, digest: Digest) -> bytes: ...

    def mapped(self, digest: Digest) -> AbstractContextManager[Bytes]:
        """The bytes in place, for as long as the block lasts."""

    def where(self, digest: Digest) -> Path | str:
        """A file here, or an address that serves the blob for a while."""

    def put(self, data: bytes) -> Digest: ...

    def receive(self) -> AbstractContextManager[Incoming]:
        """A place to write to; `keep` it within the block, or it is gone."""

    def keep(self, incoming: Incoming, expected: Digest | None = None) -> Digest:
        """Makes the blob durable under its digest; raises Conflict where that is not the expected one."""

    def drop(self, digest: Digest) -> None:
        """Forgets the blob, where there is one."""

    def door(self, name: str, length: int, seconds: float) -> str | None:
        """An address that takes a PUT of exactly `length` bytes for so long; None: send them to the service itself."""

    def left(self, name: str, length: int) -> AbstractContextManager[Incoming]:
        """What was put at the door `name`, to be looked at and kept; gone from there after the block.

        Raises NotFound where nothing was put there, Conflict where it has not `length` bytes.
        """


def opened(settings: RequesterSettings) -> Blobs:
    """The store that the settings choose; raises Refused where there is none of that name."""
    store: Blobs = plugins.load(__name__, settings.blobs).open_store(settings)
    return store
