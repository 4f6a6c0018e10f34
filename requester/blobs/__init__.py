"""Stores of blobs by their digest. Each store is one file, whose name is its name in the settings.

Some stores can be reached by clients directly. Then readers are redirected to an address that serves a blob for a
while, and the uploader of a payload gets an address that takes exactly so many bytes. Such an upload counts only once
the service has read it.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from gradmarket.market.terms import Digest
from gradmarket.market.wire.framing import PartAddress
from graphdoc import plugins
from graphdoc.encoding import Bytes
from requester.blobs._unfinished import UnfinishedUploads
from requester.blobs.disk import Incoming
from requester.settings import RequesterSettings


class Blobs(Protocol):
    """Blobs never change. Every method that takes a digest raises NotFound where there is no such blob."""

    reached_past_us: bool
    """Whether clients reach the store directly: then `door` returns addresses."""
    unfinished: UnfinishedUploads
    """Uploads to the service that broke off."""

    def has(self, digest: Digest) -> bool: ...

    def length(self, digest: Digest) -> int:
        """In bytes."""

    def read(self, digest: Digest) -> bytes: ...

    def mapped(self, digest: Digest) -> AbstractContextManager[Bytes]:
        """Maps the blob's bytes into memory for as long as the block lasts."""

    def where(self, digest: Digest) -> Path | str:
        """Returns a local file, or an address that serves the blob for a while."""

    def pieces(self, digest: Digest) -> bytes:
        """Returns the list of the blob's piece digests; NotFound too where it has one piece, or was kept without."""

    def put(self, data: bytes) -> Digest: ...

    def receive(self) -> AbstractContextManager[Incoming]:
        """Opens a new blob to write to; unless `keep` is called within the block, it is deleted."""

    def continued(self, owner: str, name: str, start: int) -> AbstractContextManager[Incoming]:
        """Opens the owner's upload from byte `start` on; where the block raises, what came is kept to be continued.

        Raises Conflict where fewer bytes are there, or while another request brings it.
        """

    def keep(self, incoming: Incoming, expected: Digest | None = None) -> Digest:
        """Makes the blob durable under its digest; raises Conflict where that is not the expected one."""

    def drop(self, digest: Digest) -> None:
        """Deletes the blob, if it is there."""

    def door(self, name: str, length: int, seconds: float) -> str | None:
        """Returns an address that takes a PUT of `length` bytes for `seconds`.

        None: upload to the service itself or, where clients reach the store directly, by `missing_parts`.
        """

    def missing_parts(self, name: str, length: int) -> list[PartAddress]:
        """Returns the addresses of the parts that have not come of a longer upload `name`; begins it at the first call.

        Raises NotFound where uploads come through the service.
        """

    def left(self, name: str, length: int) -> AbstractContextManager[Incoming]:
        """Gives what was uploaded to the address `name`, to be checked and kept; it is deleted there after the block.

        Raises NotFound where nothing was uploaded, Conflict where it does not have `length` bytes.
        """


def open_blob_store(settings: RequesterSettings) -> Blobs:
    """Returns the store that the settings choose; raises Refused where there is none of that name."""
    store: Blobs = plugins.load_plugin(__name__, settings.blobs).open_store(settings)
    return store
