"""Payloads being uploaded: a callback runs before the first byte of each leaves this process."""

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Final, cast

import httpx

from gradmarket.compute.cache import map_cached_file
from gradmarket.market.wire import framing
from gradmarket.market.wire.poll import ANSWER_WITHIN, PayloadPart
from gradmarket.network import DownloadFailed
from gradmarket.network.addresses import Resolve, check_link_target, resolve_host
from gradmarket.network.clocked import HOST_NAMED, ClockedTransport

CHUNK: Final = 1 << 16


class _Outgoing(FileIO):
    """A file that calls `leaves` before each read.

    A client reads it only when connected and after sending the headers.
    """

    def __init__(self, path: Path, leaves: Callable[[], None]) -> None:
        super().__init__(path)
        self._leaves = leaves

    def read(self, size: int | None = None) -> bytes | None:  # type: ignore[override]
        self._leaves()
        return super().read(size)


@dataclass(frozen=True)
class Payload:
    """The file at `path`; `leaves` is called before any of its bytes is sent, and its errors stop the upload.

    `part` names it in the request; `begun`: an upload of it may have broken off.
    """

    path: Path
    leaves: Callable[[], None]
    part: PayloadPart | None = None
    begun: bool = False

    def open(self) -> BinaryIO:
        """Opens the file. Raises OSError if it is gone."""
        return cast(BinaryIO, _Outgoing(self.path, self.leaves))

    @property
    def length(self) -> int:
        """Returns the length of the file. Raises OSError if it is gone."""
        return self.path.stat().st_size

    @property
    def start(self) -> int | None:
        return None if self.part is None else self.part.start

    @property
    def in_pieces(self) -> bool:
        return self.start is not None

    def from_byte(self, received: int) -> "Payload":
        """Returns the payload without the pieces that the market has."""
        start = framing.whole_pieces(min(received, self.length))
        return replace(self, part=self.part and self.part.model_copy(update={"start": start}))

    def span(self, start: int, length: int) -> Iterator[bytes]:
        """Yields `length` bytes from `start` on."""
        with self.open() as file:
            file.seek(start)
            while length > 0 and (chunk := file.read(min(CHUNK, length))):
                length -= len(chunk)
                yield chunk

    def read_chunks(self) -> Iterator[bytes]:
        """Yields the bytes after the request: all, or from `start` on each piece after its digest.

        They are views of the file: to copy them into new memory takes as long as to hash them.
        """
        data, size = map_cached_file(self.path), CHUNK if self.start is None else framing.PIECE
        for begin in range(self.start or 0, len(data), size):
            piece = cast(bytes, data[begin : begin + size])
            self.leaves()
            if self.start is not None:
                yield framing.piece_digest(piece)
            yield piece


@dataclass(frozen=True)
class FramedPayloads:
    """A request and the payloads that follow it, one after the other."""

    head: bytes
    payloads: Sequence[Payload]

    @property
    def length(self) -> int:
        """Returns the length of request and payloads. Raises OSError if a file is gone."""
        return len(self.head) + sum(framing.sent_bytes(payload.length, payload.start) for payload in self.payloads)

    @contextmanager
    def open(self) -> Iterator[Iterator[bytes]]:
        yield self._read_all_chunks()

    def _read_all_chunks(self) -> Iterator[bytes]:
        yield self.head
        for payload in self.payloads:
            yield from payload.read_chunks()


PUT_S = 600.0


class ObjectStores:
    """`allowed`: origins that this worker's owner named; only these may be in its own network."""

    def __init__(self, allowed: frozenset[str], look_up: Resolve = resolve_host) -> None:
        self._allowed = allowed
        self._look_up = look_up

    def put(self, door: str, payload: Payload, start: int = 0, length: int | None = None) -> None:
        """Sends one PUT without credentials, of all bytes or of `length` from `start` on; follows no redirect.

        The store refuses other bytes than those of their Content-MD5. Raises DownloadRefused or DownloadFailed.
        """
        target = check_link_target(door, "", self._look_up, own=False, allowed=self._allowed)
        name = httpx.URL(f"http://{target.host}").host
        timeout = httpx.Timeout(30.0, write=PUT_S, read=PUT_S)
        extensions = {HOST_NAMED: name, ANSWER_WITHIN: PUT_S}
        network = ClockedTransport()
        length = payload.length - start if length is None else length
        hasher, left = hashlib.md5(usedforsecurity=False), length  # against accidents on the way, not against anybody
        with payload.path.open("rb") as file:
            file.seek(start)
            while left > 0 and (chunk := file.read(min(CHUNK, left))):
                hasher.update(chunk)
                left -= len(chunk)
        headers = {
            "host": target.host,
            "content-length": str(length),
            "content-md5": base64.b64encode(hasher.digest()).decode(),  # RFC 1864
        }
        with httpx.Client(trust_env=False, timeout=timeout, transport=network) as http:
            body = payload.span(start, length)
            request = http.build_request("PUT", target.url, headers=headers, content=body, extensions=extensions)
            try:
                response = http.send(request)
            except httpx.TransportError as error:
                raise DownloadFailed(f"{target.host}: {error or type(error).__name__}") from error
        if not response.is_success:
            raise DownloadFailed(f"{target.host} answers {response.status_code}")
