"""Downloads by digest: hashed while they stream, never longer than declared, resumed after an interruption.

Where the whole has another digest, the market's list of piece digests identifies the wrong pieces, and only these are
fetched again. The list is requested only then, so a correct download costs no further request.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import urljoin

import httpx
from blake3 import blake3

from gradmarket.compute.cache import Cache
from gradmarket.market.terms import Digest
from gradmarket.market.wire import framing
from gradmarket.market.wire.poll import ANSWER_WITHIN, hash_of
from gradmarket.network import DownloadFailed, DownloadRefused
from gradmarket.network.addresses import DATA_SERVERS, STORES, NetworkPlace, Resolve, check_link_target, resolve_host
from gradmarket.network.clocked import HOST_NAMED, ClockedTransport
from graphdoc.encoding import Bytes

REDIRECTS: Final = 4
PATIENCE_S: Final = 60.0
"""Seconds for which a download that makes no progress is retried."""
LEAST_RATE: Final = 1024.0
"""Bytes a second, over PATIENCE_S, that count as progress: a byte now and then would hold a worker for an hour."""
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0
PIECE_TRIES: Final = 3
"""Times that a wrong piece is fetched again: its source may spoil it once more."""
DESCRIBED_BYTES: Final = 64 * 2**20
"""The most bytes of a manifest, which a service takes, and of a document."""
ROOM_AT_ONCE: Final = 2**23
"""Bytes by which the cache makes room ahead for a download of undeclared length."""


class Fetcher:
    """`limit`: most bytes of a download. `seconds`: the longest time that one may take in all.

    `bearer` returns the session headers for the market; they are sent to the market's own origin only. `stores`:
    origins that the market may redirect a download to wherever they are; no other host may. `data_servers`: origins
    that a dataset's links may lead to wherever they are. `named`: the worker's owner named the market, so the market
    may have any address. `remedies`: how the owner names a store, and a data server.
    """

    def __init__(
        self,
        cache: Cache,
        origin: str,
        limit: int,
        seconds: float = 3600.0,
        look_up: Resolve = resolve_host,
        pause: Callable[[float], object] = time.sleep,
        bearer: Callable[[], dict[str, str]] = dict,
        stores: frozenset[str] = frozenset(),
        named: bool = True,
        data_servers: frozenset[str] = frozenset(),
        remedies: tuple[str, str] = (STORES, DATA_SERVERS),
    ) -> None:
        self._cache = cache
        self._origin = origin
        self._limit = limit
        self._seconds = seconds
        self._look_up = look_up
        self._pause = pause
        self._bearer = bearer
        self._stores = stores
        self._data_servers = data_servers
        self._remedies = remedies
        self._named = named
        self._fetching: set[Digest] = set()
        self._changed = threading.Condition()
        self._http = httpx.Client(trust_env=False, timeout=30.0, transport=ClockedTransport())

    def close(self) -> None:
        self._http.close()

    def blob(self, digest: Digest) -> memoryview:
        """Returns one of the market's blobs, mapped. Raises DownloadRefused or DownloadFailed."""
        return self.get(f"/v1/blobs/{digest}", digest)

    def fetch_described(self, digest: Digest) -> bytes:
        """Returns a document or manifest, which are read whole; raises as `blob`, and for over DESCRIBED_BYTES."""
        return bytes(self.get(f"/v1/blobs/{digest}", digest, most=DESCRIBED_BYTES))

    def get(self, link: str, digest: Digest, length: int | None = None, most: float = math.inf) -> memoryview:
        """Returns the bytes with this digest, mapped, from the cache or from `link`; `length` of them if it is given.

        Raises DownloadRefused for more than `most` of them.
        If several threads, or processes with one cache folder, want one digest, one downloads it and the others wait.
        """
        with self._lock_digest(digest):
            data = self._cache.read(digest)
            if data is None:
                data = self._download_checked(link, digest, length, most)
        if length is not None and len(data) != length:
            raise DownloadRefused(f"{digest} does not have the declared {length} bytes")
        if len(data) > most:
            raise DownloadRefused(f"{digest} is longer than {most} bytes")
        return data

    def held(self, digest: Digest, most: int) -> memoryview | None:
        """Returns the bytes with this digest if they are in the cache and not more than `most`."""
        return self._cache.read(digest) if _measure_file_length(self._cache.path(digest)) <= most else None

    def made(self, digest: Digest, make: Callable[[], Bytes]) -> memoryview:
        """Returns the bytes with this digest: from the cache, or made and put there. `make` checks the digest."""
        with self._lock_digest(digest):
            data = self._cache.read(digest)
            if data is None:
                new = make()
                with self._cache.open_part(digest, len(new)) as part:
                    part.write_bytes(new)
                    data = self._cache.finish_part(digest)
        return data

    def small(self, link: str, limit: int) -> bytes:
        """Returns an answer of the market that has no digest, at most `limit` bytes; it is asked for once."""
        until = time.monotonic() + min(self._seconds, PATIENCE_S)
        try:
            with self._open_link(link, until) as response:
                _expect_bytes(response, None)
                return _at_most(limit, response, until)
        except httpx.TransportError as error:
            raise DownloadFailed(f"{link}: {error}") from error

    @contextmanager
    def _lock_digest(self, digest: Digest) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: digest not in self._fetching)
            self._fetching.add(digest)
        try:
            with self._cache.alone(digest):
                yield
        finally:
            with self._changed:
                self._fetching.discard(digest)
                self._changed.notify_all()

    def _download_checked(self, link: str, digest: Digest, length: int | None, most: float) -> memoryview:
        limit = int(min(self._limit, self._cache.limit, most))
        if length is not None and length > limit:
            raise DownloadRefused(f"{length} bytes are more than was allowed ({limit})")
        limit = limit if length is None else length
        since, pause = time.monotonic(), FIRST_PAUSE_S
        until, patience = since + self._seconds, since + min(self._seconds, PATIENCE_S)
        with self._cache.open_part(digest, length or 0) as part:
            anew, there = False, _measure_file_length(part)
            while True:
                before = _measure_file_length(part)
                try:
                    if self._stream_into_part(link, digest, limit, until):
                        return self._cache.finish_part(digest)
                    if anew or not before:
                        raise DownloadRefused(f"{link} is not {digest}")
                    anew, there = True, 0
                except (httpx.TransportError, DownloadFailed) as error:
                    now, length = time.monotonic(), _measure_file_length(part)
                    if length > there and length - there >= LEAST_RATE * (now - since):
                        since, there, pause = now, length, FIRST_PAUSE_S
                        patience = min(until, now + PATIENCE_S)
                    if time.monotonic() > patience:
                        raise DownloadFailed(f"{link}: {error}") from error
                self._pause(pause)
                pause = min(LONGEST_PAUSE_S, 2 * pause)

    def _stream_into_part(self, link: str, digest: Digest, limit: int, until: float) -> bool:
        """Fetches the missing bytes of the `.part` file; returns whether its digest is right, and else deletes it."""
        part, hasher = self._cache.part(digest), blake3()
        there = _measure_file_length(part)
        with self._open_link(link, until, {"range": f"bytes={there}-"} if there else {}) as response:
            ended = there and response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE
            if not ended:
                _expect_bytes(response, there or None)
            resumed = response.status_code != httpx.codes.OK and there
            if resumed:
                hasher.update_mmap(part)
            if not ended:
                with part.open("ab" if resumed else "wb") as file:
                    self._write_chunks(response, file, hasher, limit, until)
        if hasher.digest() == hash_of(digest) or self._mend_pieces(link, digest, limit, until):
            return True
        part.unlink()
        return False

    def _mend_pieces(self, link: str, digest: Digest, limit: int, until: float) -> bool:
        """Fetches again the pieces that are not the market's list's; returns whether the whole is right then.

        A wrong or missing list mends nothing and costs at most the tries of one piece.
        """
        part = self._cache.part(digest)
        if _measure_file_length(part) <= framing.PIECE:
            return False
        with suppress(DownloadRefused), part.open("r+b") as file:
            listed = self.small(f"/v1/blobs/{digest}/pieces", framing.count_digest_bytes(limit))
            for start, right in framing.by_start(listed).items():
                file.seek(start)
                if framing.piece_digest(file.read(framing.PIECE)) != right:
                    piece = self._fetch_piece(link, start, right, until)
                    self._cache.make_room(part, start + len(piece))
                    file.seek(start)
                    file.write(piece)
            file.truncate()
            file.flush()
            return blake3().update_mmap(part).digest() == hash_of(digest)
        return False

    def _fetch_piece(self, link: str, start: int, right: bytes, until: float) -> bytes:
        """Returns the piece from byte `start` on, past all caches; raises DownloadRefused where it never comes."""
        headers = {"range": f"bytes={start}-{start + framing.PIECE - 1}", "cache-control": "no-cache"}
        for _ in range(PIECE_TRIES):
            with self._open_link(link, until, headers) as response:
                _expect_bytes(response, start)
                piece = _at_most(framing.PIECE, response, until)
            if framing.piece_digest(piece) == right:
                return piece
        raise DownloadRefused(f"{link} lacks the listed bytes from {start} on")

    def _write_chunks(self, response: httpx.Response, file: BinaryIO, hasher: blake3, limit: int, until: float) -> None:
        """Writes and hashes the received chunks: at most `limit` bytes, and no more than the cache has room for."""
        part, written = Path(file.name), file.tell()
        room = written
        for chunk in _in_pace(response):
            written += len(chunk)
            if written > limit:
                part.unlink()
                raise DownloadRefused(f"it is longer than {limit} bytes")
            if time.monotonic() > until:
                raise DownloadFailed("it takes too long")
            if written > room:
                room = min(limit, written + ROOM_AT_ONCE)
                self._cache.make_room(part, room)
            hasher.update(chunk)
            file.write(chunk)

    @contextmanager
    def _open_link(self, link: str, until: float, headers: Mapping[str, str] | None = None) -> Iterator[httpx.Response]:
        """Opens `link` and follows its redirects; each redirect is checked like a link."""
        own, ours = True, False
        for _ in range(REDIRECTS):
            allowed, remedy = self._data_servers | (self._stores if ours else frozenset()), self._remedies[not ours]
            target = check_link_target(link, self._origin, self._look_up, own, allowed, self._named, remedy)
            own = ours = target.own
            request = self._build_request(target, until, headers or {})
            response = self._http.send(request, stream=True)
            try:
                if not response.has_redirect_location:
                    yield response
                    return
                link = urljoin(target.link, response.headers["location"])
            finally:
                response.close()
        raise DownloadRefused(f"more than {REDIRECTS} redirects")

    def _build_request(self, where: NetworkPlace, until: float, besides: Mapping[str, str]) -> httpx.Request:
        headers = {"host": where.host, "accept-encoding": "identity", **besides}
        if where.own:
            headers |= self._bearer()
        name = httpx.URL(f"http://{where.host}").host
        extensions = {HOST_NAMED: name, ANSWER_WITHIN: until - time.monotonic()}
        return self._http.build_request("GET", where.url, headers=headers, extensions=extensions)


def _expect_bytes(response: httpx.Response, start: int | None) -> None:
    """Raises unless the answer has the requested bytes: all, or the range from byte `start` on."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise DownloadRefused("the answer is compressed, which the request forbade")
    if response.status_code >= 500 or response.status_code == 429:
        raise DownloadFailed(f"the answer is {response.status_code}")
    if response.status_code not in (200, 206):
        raise DownloadRefused(f"the answer is {response.status_code}")
    if response.status_code == 206 and not response.headers.get("content-range", "").startswith(f"bytes {start}-"):
        raise DownloadRefused("the answer has another range than the request")


def _in_pace(response: httpx.Response) -> Iterator[bytes]:
    """Yields the received chunks. Raises DownloadFailed where they come at less than LEAST_RATE over PATIENCE_S."""
    began, came = time.monotonic(), 0
    for chunk in response.iter_raw():
        came, took = came + len(chunk), time.monotonic() - began
        if took > PATIENCE_S and came < LEAST_RATE * took:
            raise DownloadFailed(f"it comes at less than {LEAST_RATE:g} bytes a second")
        yield chunk


def _at_most(limit: int, response: httpx.Response, until: float) -> bytes:
    data = bytearray()
    for chunk in _in_pace(response):
        data += chunk
        if len(data) > limit or time.monotonic() > until:
            raise DownloadRefused(f"{response.url} is longer than {limit} bytes, or takes too long")
    return bytes(data)


def _measure_file_length(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
