"""Stores of blobs by their digest. Each store is one file, and the settings name it by the file's name.

Some stores can be reached by clients directly. Then readers are redirected to an address that serves a blob for a
while, and the uploader of a payload gets an address that takes exactly the payload's length. Such an upload counts only
once the service has read it.
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
    """Blobs never change. Every method that takes a digest raises NotFound for an unknown blob."""

    reached_past_us: bool
    """Whether clients reach the store directly: then `door` returns addresses."""
    unfinished: UnfinishedUploads
    """Uploads to the service that broke off."""

    def has(self, digest: Digest) -> bool: ...

    def length(self, digest: Digest) -> int:
        """Returns the blob's length in bytes."""

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
        """Opens the owner's upload from byte `start` on; where the block raises, the bytes so far are kept to be
        continued.

        Raises Conflict where fewer bytes are stored, or while another request brings it.
        """

    def store_blob(self, incoming: Incoming, expected: Digest | None = None) -> Digest:
        """Makes the blob durable under its digest; raises Conflict where that is not the expected one."""

    def drop(self, digest: Digest) -> None:
        """Deletes the blob, if it exists."""

    def door(self, name: str, length: int, seconds: float) -> str | None:
        """Returns an address that takes a PUT of `length` bytes for `seconds`.

        None: upload to the service itself or, where clients reach the store directly, by `missing_parts`.
        """

    def missing_parts(self, name: str, length: int) -> list[PartAddress]:
        """Returns the addresses of the missing parts of a longer upload `name`; begins it at the first call.

        Raises NotFound where uploads come through the service.
        """

    def left(self, name: str, length: int) -> AbstractContextManager[Incoming]:
        """Yields the upload at the address `name`, to be checked and kept; the store deletes it after the block.

        Raises NotFound without an upload, Conflict if its length is not `length` bytes.
        """


def open_blob_store(settings: RequesterSettings) -> Blobs:
    """Returns the store that the settings choose; raises Refused for an unknown name."""
    store: Blobs = plugins.load_plugin(__name__, settings.blobs).open_store(settings)
    return store
