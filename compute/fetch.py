"""Downloads by digest: hashed while they stream, never longer than declared, resumed after an interruption."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import urljoin

import httpx
from blake3 import blake3

from gradmarket.compute.addresses import NetworkPlace, Resolve, place, resolve
from gradmarket.compute.cache import Cache
from gradmarket.compute.clocked import ClockedTransport
from gradmarket.compute.download_errors import DownloadFailed, DownloadRefused
from gradmarket.market.gradient.arrays import Bytes
from gradmarket.market.terms import Digest
from gradmarket.market.wire import ANSWER_WITHIN, hash_of

REDIRECTS: Final = 4
PATIENCE_S: Final = 60.0
"""Seconds for which a download that makes no progress is retried."""
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0
ROOM_AT_ONCE: Final = 2**23
"""Bytes by which the cache makes room ahead for a download of undeclared length."""


class Fetcher:
    """`limit`: most bytes of a download. `seconds`: the longest time that one may take in all.

    `bearer` returns the session headers for the market; they are sent to the market's own origin only. `stores`:
    origins that the market may redirect a download to wherever they are; no other host may. `named`: the worker's owner
    named the market, so the market may have any address.
    """

    def __init__(
        self,
        cache: Cache,
        origin: str,
        limit: int,
        seconds: float = 3600.0,
        look_up: Resolve = resolve,
        pause: Callable[[float], object] = time.sleep,
        bearer: Callable[[], dict[str, str]] = dict,
        stores: frozenset[str] = frozenset(),
        named: bool = True,
    ) -> None:
        self._cache = cache
        self._origin = origin
        self._limit = limit
        self._seconds = seconds
        self._look_up = look_up
        self._pause = pause
        self._bearer = bearer
        self._stores = stores
        self._named = named
        self._fetching: set[Digest] = set()
        self._changed = threading.Condition()
        self._http = httpx.Client(trust_env=False, timeout=30.0, transport=ClockedTransport())

    def close(self) -> None:
        self._http.close()

    def blob(self, digest: Digest) -> memoryview:
        """Returns one of the market's blobs, mapped. Raises DownloadRefused or DownloadFailed."""
        return self.get(f"/v1/blobs/{digest}", digest)

    def get(self, link: str, digest: Digest, length: int | None = None) -> memoryview:
        """Returns the bytes with this digest, mapped, from the cache or from `link`; `length` of them if it is given.

        If several threads, or processes with one cache folder, want one digest, one downloads it and the others wait.
        """
        with self._alone(digest):
            data = self._cache.read(digest)
            if data is None:
                data = self._download(link, digest, length)
        if length is not None and len(data) != length:
            raise DownloadRefused(f"{digest} has not the {length} bytes that were declared")
        return data

    def held(self, digest: Digest, most: int) -> memoryview | None:
        """Returns the bytes with this digest if they are in the cache and not more than `most`."""
        return self._cache.read(digest) if _length(self._cache.path(digest)) <= most else None

    def made(self, digest: Digest, make: Callable[[], Bytes]) -> memoryview:
        """Returns the bytes with this digest: from the cache, or made and put there. `make` checks the digest."""
        with self._alone(digest):
            data = self._cache.read(digest)
            if data is None:
                new = make()
                with self._cache.filling(digest, len(new)) as part:
                    part.write_bytes(new)
                    data = self._cache.keep(digest)
        return data

    def small(self, link: str, limit: int) -> bytes:
        """Returns an answer of the market that has no digest, at most `limit` bytes; it is asked for once."""
        until = time.monotonic() + min(self._seconds, PATIENCE_S)
        try:
            with self._open(link, 0, until) as response:
                _expect_bytes(response, None)
                data = b""
                for chunk in response.iter_raw():
                    data += chunk
                    if len(data) > limit or time.monotonic() > until:
                        raise DownloadRefused(f"{link} is longer than {limit} bytes, or takes too long")
        except httpx.TransportError as error:
            raise DownloadFailed(f"{link}: {error}") from error
        return data

    @contextmanager
    def _alone(self, digest: Digest) -> Iterator[None]:
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

    def _download(self, link: str, digest: Digest, length: int | None) -> memoryview:
        limit = min(self._limit, self._cache.limit)
        if length is not None and length > limit:
            raise DownloadRefused(f"{length} bytes are more than was allowed ({limit})")
        limit = limit if length is None else length
        until, pause = time.monotonic() + self._seconds, FIRST_PAUSE_S
        patience = min(until, time.monotonic() + PATIENCE_S)
        with self._cache.filling(digest, length or 0) as part:
            while True:
                before = _length(part)
                try:
                    self._stream(link, digest, limit, until)
                    break
                except (httpx.TransportError, DownloadFailed) as error:
                    if _length(part) > before:
                        patience, pause = min(until, time.monotonic() + PATIENCE_S), FIRST_PAUSE_S
                    if time.monotonic() > patience:
                        raise DownloadFailed(f"{link}: {error}") from error
                self._pause(pause)
                pause = min(LONGEST_PAUSE_S, 2 * pause)
            return self._cache.keep(digest)

    def _stream(self, link: str, digest: Digest, limit: int, until: float) -> None:
        part = self._cache.part(digest)
        with self._open(link, _length(part), until) as response:
            _expect_bytes(response, part)
            resumed = response.status_code == httpx.codes.PARTIAL_CONTENT
            hasher = blake3()
            if resumed:
                hasher.update_mmap(part)
            with part.open("ab" if resumed else "wb") as file:
                self._fill(response, file, hasher, limit, until)
        if hasher.digest() != hash_of(digest):
            part.unlink()
            raise DownloadFailed(f"{link} is not {digest}") if resumed else DownloadRefused(f"{link} is not {digest}")

    def _fill(self, response: httpx.Response, file: BinaryIO, hasher: blake3, limit: int, until: float) -> None:
        """Writes and hashes what arrives; never more than `limit` bytes, nor more than the cache has room for."""
        part, written = Path(file.name), file.tell()
        room = written
        for chunk in response.iter_raw():
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
    def _open(self, link: str, start: int, until: float) -> Iterator[httpx.Response]:
        """Opens `link` and follows its redirects; each redirect is checked like a link."""
        own, ours = True, False
        for _ in range(REDIRECTS):
            target = place(link, self._origin, self._look_up, own, self._stores if ours else frozenset(), self._named)
            own = ours = target.own
            request = self._request(target, start, until)
            response = self._http.send(request, stream=True)
            try:
                if not response.has_redirect_location:
                    yield response
                    return
                link = urljoin(target.link, response.headers["location"])
            finally:
                response.close()
        raise DownloadRefused(f"more than {REDIRECTS} redirects")

    def _request(self, where: NetworkPlace, start: int, until: float) -> httpx.Request:
        headers = {"host": where.host, "accept-encoding": "identity"}
        if where.own:
            headers |= self._bearer()
        if start:
            headers["range"] = f"bytes={start}-"
        name = httpx.URL(f"http://{where.host}").host
        extensions = {"sni_hostname": name, ANSWER_WITHIN: until - time.monotonic()}
        return self._http.build_request("GET", where.url, headers=headers, extensions=extensions)


def _expect_bytes(response: httpx.Response, part: Path | None) -> None:
    """Raises unless the answer has the bytes that were asked for: all, or those after what `part` has."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise DownloadRefused("the answer is compressed, which was not asked for")
    if part is not None and response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
        part.unlink(missing_ok=True)
        raise DownloadFailed("it cannot be resumed")
    if response.status_code >= 500 or response.status_code == 429:
        raise DownloadFailed(f"the answer is {response.status_code}")
    if response.status_code not in (200, 206):
        raise DownloadRefused(f"the answer is {response.status_code}")
    if response.status_code == 206 and not _continues(response, _length(part) if part is not None else 0):
        raise DownloadRefused("another range than was asked for")


def _continues(response: httpx.Response, start: int) -> bool:
    return bool(start) and response.headers.get("content-range", "").startswith(f"bytes {start}-")


def _length(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
