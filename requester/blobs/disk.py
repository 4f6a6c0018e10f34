"""Blobs as files: written under another name, synced, then linked, so that a name never holds half a blob."""

import ctypes
import fcntl
import mmap
import os
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO, Final

from blake3 import blake3

from gradmarket.market.errors import Conflict, NotFound
from gradmarket.market.terms import Digest, digest_text
from gradmarket.market.wire import framing
from gradmarket.market.wire.framing import PartAddress
from graphdoc.encoding import Bytes
from requester.blobs._unfinished import UnfinishedUploads, lies_at
from requester.settings import RequesterSettings

STRIDE: Final = 1 << 20
"""Bytes after which the kernel is asked to begin writing them to the disk."""
BESIDE: Final = 4 << 20
"""Least bytes of a chunk that a second thread hashes; with smaller ones, waking it takes much of its saving."""
SYNC_FILE_RANGE_WRITE: Final = 2
_sync_file_range: Final = getattr(ctypes.CDLL(None), "sync_file_range", None)
"""Linux's sync_file_range; int (int descriptor, int64 offset, int64 length, unsigned flags)."""


class Incoming:
    """A blob that is being received: `write` chunks, then `keep`; it is deleted if it is not kept.

    `to_stay`: it is likely to be kept on this disk, so writing it out begins while the rest still arrives. `start`: the
    bytes stored already; they are hashed with the rest at its end, once however often it was continued.
    """

    def __init__(self, file: BinaryIO, to_stay: bool, beside: Executor, start: int = 0) -> None:
        self._file = file
        self.beside = beside
        self._hasher = blake3()
        self._to_stay = to_stay
        self._begun = start
        self._to_hash = self.continued = start > 0
        self._listed = bytearray()
        self._linking, self._ended = threading.Lock(), False
        self.length = start
        self.lies: object = None
        """The place of the bytes where the store already has them, in the store's own terms; else None."""

    def write(self, chunk: Bytes, digest: bytes = b"") -> None:
        """Writes the chunk; a second thread hashes a large one meanwhile.

        `digest`: the chunk's, where it is one of the blob's pieces and was checked, so that it is hashed once.
        """
        self._listed += digest
        if self._to_hash:
            self._file.write(chunk)
        elif len(chunk) < BESIDE:
            self._file.write(chunk)
            self._hasher.update(chunk)
        else:
            hashed = self.beside.submit(self._hasher.update, chunk)
            self._file.write(chunk)
            hashed.result()
        self.length += len(chunk)
        if self._to_stay and self.length - self._begun >= STRIDE:
            # the kernel writes these pages out, without waiting; a later fsync waits for less, and reports errors
            if _sync_file_range is not None:
                start, length = ctypes.c_int64(self._begun), ctypes.c_int64(self.length - self._begun)
                _sync_file_range(self._file.fileno(), start, length, SYNC_FILE_RANGE_WRITE)
            self._begun = self.length

    def discard(self) -> None:
        """Deletes the bytes, unless they are stored as a blob: none stay to be continued."""
        if os.fstat(self._file.fileno()).st_nlink == 1:
            self._file.truncate(0)

    def flush(self) -> None:
        """Passes the written bytes to the kernel: another process sees them."""
        self._file.flush()

    @property
    def digest(self) -> Digest:
        if self._to_hash:
            self._file.flush()
            self._hasher.update_mmap(self._file.name)
            self._to_hash = False
        return digest_text(self._hasher)

    @property
    def pieces(self) -> bytes:
        """Returns the list of its piece digests; empty where it has one piece."""
        if self.length > framing.PIECE and len(self._listed) == framing.count_digest_bytes(self.length):
            return bytes(self._listed)
        with self.mapped() as data:
            return framing.join_piece_digests(data)

    @contextmanager
    def mapped(self) -> Iterator[Bytes]:
        """Yields the bytes written so far, without a copy in memory."""
        self._file.flush()
        with map_file(Path(self._file.name)) as data:
            yield data

    @contextmanager
    def reopen_file(self) -> Iterator[BinaryIO]:
        """Opens the bytes written so far, from their beginning."""
        self._file.flush()
        with Path(self._file.name).open("rb") as file:
            yield file

    def sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def link(self, place: Path) -> None:
        """Gives the synced bytes their final name; equal content that is already there stays.

        Raises Conflict where the request ended meanwhile: the next one may write to the file.
        """
        with self._linking, suppress(FileExistsError):
            if self._ended:
                raise Conflict("its request ended before it was stored: send it again")
            os.link(self._file.name, place)

    def end(self) -> None:
        """Waits for a thread that links the bytes; none does after this."""
        with self._linking:
            self._ended = True

    def list_pieces(self, of: "Incoming") -> None:
        """Writes the piece digests of another blob durably."""
        self.write(of.pieces)
        self.sync()


class DiskBlobs:
    """A folder of blobs, which several processes may share: each locks the files it receives; unlocked ones are deleted
    at the start.

    `to_stay` false: bytes only pass through here, and need not reach the disk. `unfinished`: bytes kept of interrupted
    uploads.
    """

    reached_past_us = False

    def __init__(self, root: Path, to_stay: bool = True, unfinished: int = 1 << 36) -> None:
        self._to_stay = to_stay
        self.unfinished = UnfinishedUploads(root / "unfinished", unfinished)
        self._root = root
        self._incoming, self._pieces = root / "incoming", root / "pieces"
        for folder in (self._incoming, self._pieces):
            folder.mkdir(parents=True, exist_ok=True)
        for leftover in self._incoming.iterdir():
            with suppress(FileNotFoundError, BlockingIOError), leftover.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if lies_at(file, leftover):
                    leftover.unlink()

    def where(self, digest: Digest) -> Path:
        """Returns the blob's path; raises NotFound for an unknown blob."""
        path = self._build_blob_path(digest)
        if not path.is_file():
            raise NotFound(f"no blob {digest}")
        return path

    def has(self, digest: Digest) -> bool:
        return self._build_blob_path(digest).is_file()

    def length(self, digest: Digest) -> int:
        return self.where(digest).stat().st_size

    def read(self, digest: Digest) -> bytes:
        return self.where(digest).read_bytes()

    def pieces(self, digest: Digest) -> bytes:
        try:
            return (self._pieces / self._build_blob_path(digest).name).read_bytes()
        except FileNotFoundError as error:
            raise NotFound(f"no pieces of {digest} are listed") from error

    def put(self, data: bytes) -> Digest:
        with self.receive() as incoming:
            incoming.write(data)
            return self.store_blob(incoming)

    @contextmanager
    def receive(self) -> Iterator[Incoming]:
        """Opens a new blob to write to; unless `keep` is called within the block, it is deleted."""
        file, path = self._create_locked()
        with file, ThreadPoolExecutor(1) as beside:  # its thread begins with a large chunk
            incoming = Incoming(file, self._to_stay, beside)
            try:
                yield incoming
            finally:
                path.unlink(missing_ok=True)

    def _create_locked(self) -> tuple[BinaryIO, Path]:
        """Returns a new locked file; a process that starts may delete one before its lock: then another."""
        while True:
            path = self._incoming / secrets.token_hex(16)
            file = path.open("xb")
            fcntl.flock(file, fcntl.LOCK_EX)
            if lies_at(file, path):
                return file, path
            file.close()

    @contextmanager
    def continued(self, owner: str, name: str, start: int) -> Iterator[Incoming]:
        with self.unfinished.opened(owner, name, start) as file, ThreadPoolExecutor(1) as beside:
            incoming = Incoming(file, self._to_stay, beside, start)
            try:
                yield incoming
            finally:
                incoming.end()

    def store_blob(self, incoming: Incoming, expected: Digest | None = None) -> Digest:
        """Makes the blob durable under its digest; raises Conflict where that is not the expected one."""
        if expected is not None and incoming.digest != expected:
            raise Conflict(f"the bytes are {incoming.digest}, not {expected}")
        place = self._build_blob_path(incoming.digest)
        place.parent.mkdir(parents=True, exist_ok=True)
        incoming.flush()
        with self.receive() if incoming.length > framing.PIECE else nullcontext() as listed:
            # two syncs at once take as long as one
            beside = None if listed is None else incoming.beside.submit(listed.list_pieces, incoming)
            incoming.sync()
            incoming.link(place)
            handle = os.open(place.parent, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            if listed is not None and beside is not None:
                beside.result()
                listed.link(self._pieces / place.name)
        return incoming.digest

    @contextmanager
    def mapped(self, digest: Digest) -> Iterator[Bytes]:
        with map_file(self.where(digest)) as data:
            yield data

    def drop(self, digest: Digest) -> None:
        (self._pieces / self._build_blob_path(digest).name).unlink(missing_ok=True)
        self._build_blob_path(digest).unlink(missing_ok=True)

    def door(self, name: str, length: int, seconds: float) -> None:
        """Returns None: uploads come through the service."""

    def missing_parts(self, name: str, length: int) -> list[PartAddress]:
        """Raises NotFound: uploads come through the service."""
        raise NotFound(
            f"{length} bytes of {name[:80]!r} have no address of their own: uploads come through the service"
        )

    def left(self, name: str, length: int) -> AbstractContextManager[Incoming]:
        """Raises NotFound: uploads come through the service."""
        raise NotFound(f"no {length} bytes were put at {name[:80]!r}: uploads come through the service")

    def _build_blob_path(self, digest: Digest) -> Path:
        name = digest.removeprefix("blake3:")
        if len(name) != 64 or not set(name) <= set("0123456789abcdef"):
            raise NotFound(f"no digest: {digest[:80]}")
        return self._root / name[:2] / name


@contextmanager
def map_file(path: Path) -> Iterator[Bytes]:
    """Maps a file's bytes from the page cache, until the block ends or the last view of them is gone.

    A view may outlive the block in the frames of an error that something else keeps, such as a compiler at its first
    call: that is no reason to refuse the bytes read.
    """
    if path.stat().st_size == 0:
        yield b""
        return
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        yield data
    finally:
        with suppress(BufferError):
            data.close()


def open_store(settings: RequesterSettings) -> DiskBlobs:
    return DiskBlobs(settings.data / "blobs", unfinished=settings.unfinished_bytes)
