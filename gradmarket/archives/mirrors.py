"""Mirrors of a job's archive: a folder or a static server each, of which one right copy of each blob is enough.

A mirror is not trusted: a blob is checked by its digest, and where one serves other bytes, or none, the next is asked.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from gradmarket.archives.archive_index import INDEX, MOST, ArchiveRecords, parse_archive, read_local_blob
from gradmarket.compute.cache import Cache
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.errors import MarketError, NotFound, Refused
from gradmarket.market.terms import Digest, JobId
from gradmarket.network import DownloadRefused
from gradmarket.network.environment import is_address
from graphdoc.encoding import Bytes

NOWHERE: Final = "http://archive.invalid"
"""The origin of a record without a market, all of whose blobs are read into the cache (RFC 2606)."""


@dataclass(frozen=True)
class Mirror:
    """`read_blob` returns the bytes with this digest. Raises MarketError where the mirror has none, or others."""

    place: str
    read_index: Callable[[], bytes]
    read_blob: Callable[[Digest], Bytes]


@dataclass
class MirrorSet:
    """Mirrors in the order in which they are asked; `troubles` lists each one's failures."""

    mirrors: Sequence[Mirror]
    troubles: list[str] = field(default_factory=list)

    def read_blob(self, digest: Digest) -> Bytes:
        """Returns the first right copy. Raises Refused if no mirror has one."""
        whys = list[str]()
        for mirror in self.mirrors:
            try:
                return mirror.read_blob(digest)
            except MarketError as error:
                whys.append(name_trouble(mirror.place, error))
                self._note(whys[-1])
        raise Refused(f"no mirror serves {digest}: {'; '.join(whys)}", "name another one (--mirror)")

    def read_record(self, job: JobId) -> tuple[str, ArchiveRecords]:
        """Returns the first archive of the job, and its place. Raises Refused if no mirror has one."""
        whys = list[str]()
        for mirror in self.mirrors:
            try:
                index = parse_archive(mirror.read_index())
                if index.job.id == job:
                    return mirror.place, ArchiveRecords(index, self.read_blob)
                whys.append(f"{mirror.place}: the archive is of job {index.job.id}, not of {job}")
            except MarketError as error:
                whys.append(name_trouble(mirror.place, error))
            self._note(whys[-1])
        raise Refused("; ".join(whys), "name a market's address, or an archive.json")

    def fill(self, fetcher: Fetcher, blobs: Iterable[Digest]) -> None:
        """Puts the blobs into the fetcher's cache. Raises Refused where no mirror serves one.

        They are read before the cache holds their place: a mirror over HTTP downloads to the same cache.
        """
        for digest in blobs:
            if fetcher.held(digest, sys.maxsize) is None:
                data = self.read_blob(digest)
                fetcher.made(digest, partial(bytes, data))

    def _note(self, trouble: str) -> None:
        if trouble not in self.troubles:
            self.troubles.append(trouble)


def check_place(name: str, place: str) -> None:
    """Raises Refused where the option of this name has no address, folder or file of an archive."""
    if not place.strip():
        raise Refused(f"{name} is empty", "write it like http://127.0.0.1:8700, or name an archive")
    if not is_address(place) and not Path(place).exists():
        raise Refused(
            f"{name}: {place[:200]} is not there", "name a folder that `gradmarket archive` wrote, or its address"
        )
    if Path(place).is_dir() and not (Path(place) / INDEX).is_file():
        raise Refused(f"{place[:200]} has no {INDEX}", "name the folder that `gradmarket archive` wrote")


def open_mirror(place: str, cache: Cache, stack: ExitStack) -> Mirror:
    """`place`: the folder or address of an archive, or of its archive.json. Reads nothing yet."""
    base = place.removesuffix(INDEX).rstrip("/")
    if is_address(place):
        fetcher = Fetcher(cache, base, cache.limit)
        stack.callback(fetcher.close)
        return _build_remote_mirror(place, fetcher)
    folder = Path(base or ".")

    def read_index() -> bytes:
        try:
            return (folder / INDEX).read_bytes()
        except OSError as error:
            raise NotFound(f"{place[:200]} cannot be read: {error.strerror}") from error

    return Mirror(place, read_index, lambda digest: read_local_blob(folder, digest))


def _build_remote_mirror(place: str, fetcher: Fetcher) -> Mirror:
    """One that did not answer for its index is not waited for at each blob; one without an index may have the blobs."""

    @cache_result
    def read_index() -> bytes:
        return fetcher.small(f"/{INDEX}", MOST)

    def read_blob(digest: Digest) -> Bytes:
        with suppress(DownloadRefused):
            read_index()
        return fetcher.blob(digest)

    return Mirror(place, read_index, read_blob)


def cache_result(read: Callable[[], bytes]) -> Callable[[], bytes]:
    """Returns a function that calls `read` once, and repeats its result or exception afterwards."""
    came = list[bytes | MarketError]()

    def give() -> bytes:
        if not came:
            try:
                came.append(read())
            except MarketError as error:
                came.append(error)
        if isinstance(came[0], MarketError):
            raise came[0]
        return came[0]

    return give


def describe_trouble(error: MarketError) -> str:
    """Returns the error's own sentence, without the name of its kind."""
    return str(error.detail or error) if isinstance(error, (NotFound, Refused)) else str(error)


def name_trouble(place: str, error: MarketError) -> str:
    """Returns the error's own sentence after the mirror's place, which comes once."""
    why = describe_trouble(error)
    return why if why.startswith(place) else f"{place}: {why}"
