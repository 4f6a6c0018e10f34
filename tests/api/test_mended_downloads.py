"""A worker's downloads of a real service, through a relay that spoils and cuts them: a piece is lost, not the whole."""

from collections.abc import Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import httpx
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.compute import fetch
from gradmarket.compute.cache import Cache
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.terms import Digest
from gradmarket.network import DownloadFailed, DownloadRefused
from tests.api.api_service import Service
from tests.kit.web_server import serving_by
from tests.lanes import leave_to_full

PIECE = 1 << 10
DATA = Random(0).randbytes(10 * PIECE + 300)
DIGEST = Digest("blake3:" + blake3(DATA).hexdigest())
BLOB = f"/v1/blobs/{DIGEST}"
LIST = f"{BLOB}/pieces"


class Relay:
    """Passes requests on to the service and spoils the answers as its fields name.

    `spoilt`: places of the blob whose bytes it has wrong, as a cache that keeps them; a request without caches gets
    them right, but for the first `again` times. `cuts`: after how many bytes the next answers break off.
    `lists`: bytes in place of the list. `sent`: bytes of the blob that left; `listed`: how often the list was
    asked for.
    """

    def __init__(self, service: Service) -> None:
        self.service = httpx.Client(base_url=service.url)
        self.spoilt, self.cuts, self.again = set[int](), list[int](), 0
        self.lists: tuple[int, bytes] | None = None
        self.sent = self.listed = 0

    def answer(self, path: str, headers: dict[str, str]) -> tuple[httpx.Response, bytes]:
        passed = {name: value for name, value in headers.items() if name in ("authorization", "range")}
        said = self.service.get(path, headers=passed)
        body = bytearray(said.content)
        if path == LIST:
            self.listed += 1
        if path == LIST and self.lists is not None:
            return httpx.Response(self.lists[0]), self.lists[1]
        if path == BLOB and said.is_success:
            self._spoil(body, headers)
        return said, bytes(body)

    def _spoil(self, body: bytearray, headers: dict[str, str]) -> None:
        if headers.get("cache-control") == "no-cache":
            if self.again == 0:
                return
            self.again -= 1
        start = int(headers.get("range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        for place in self.spoilt:
            if 0 <= place - start < len(body):
                body[place - start] ^= 1


@pytest.fixture
def relay(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Relay, str]]:
    """The relay and its address; the service has the blob."""
    monkeypatch.setattr("gradmarket.market.wire.framing.PIECE", PIECE)
    monkeypatch.setattr(fetch, "FIRST_PAUSE_S", 0.001)
    service.context.blobs.drop(DIGEST)
    assert service.requester.put(BLOB, content=DATA).status_code == 201
    made = Relay(service)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said, body = made.answer(self.path, {name.lower(): value for name, value in self.headers.items()})
            self.send_response(said.status_code)
            if "content-range" in said.headers:
                self.send_header("content-range", said.headers["content-range"])
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.path == BLOB and said.is_success:
                body = body[: made.cuts.pop(0)] if made.cuts else body
                made.sent += len(body)
            with suppress(OSError):
                self.wfile.write(body)

    with serving_by(Handler) as url, made.service:
        yield made, url


@pytest.fixture
def bearer(service: Service) -> dict[str, str]:
    _, client = service.worker()
    return {"authorization": client.headers["Authorization"]}


def fetched(folder: Path, url: str, bearer: dict[str, str], link: str = BLOB) -> bytes:
    """By a worker of this folder, which is new each time."""
    with closing(Fetcher(Cache(folder, 10**6), url, limit=200_000, bearer=lambda: bearer)) as fetcher:
        return bytes(fetcher.get(link, DIGEST))


def test_a_right_download_asks_for_no_list(relay: tuple[Relay, str], bearer: dict[str, str], tmp_path: Path) -> None:
    made, url = relay
    made.cuts = [len(DATA) // 2, len(DATA) // 4]
    assert fetched(tmp_path, url, bearer) == DATA
    assert (made.sent, made.listed) == (len(DATA), 0)


@pytest.mark.parametrize("place", leave_to_full([0, PIECE - 1, PIECE, 5 * PIECE + 77, len(DATA) - 1]))
def test_a_flipped_byte_costs_its_piece(
    relay: tuple[Relay, str], bearer: dict[str, str], tmp_path: Path, place: int
) -> None:
    made, url = relay
    made.spoilt = {place}
    assert fetched(tmp_path, url, bearer) == DATA
    piece = min(PIECE, len(DATA) - place // PIECE * PIECE)
    assert (made.sent, made.listed) == (len(DATA) + piece, 1)


def test_a_piece_spoilt_again_is_sent_again(relay: tuple[Relay, str], bearer: dict[str, str], tmp_path: Path) -> None:
    made, url = relay
    made.spoilt, made.again = {5 * PIECE}, 2
    assert fetched(tmp_path, url, bearer) == DATA
    assert made.sent == len(DATA) + 3 * PIECE


def test_a_worker_that_ends_at_99_percent_of_spoilt_bytes_goes_on_when_it_starts_again(
    relay: tuple[Relay, str], bearer: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, url = relay
    made.spoilt, made.cuts = {3 * PIECE + 5}, [len(DATA) * 99 // 100]
    monkeypatch.setattr(fetch, "PATIENCE_S", -1.0)
    with pytest.raises(DownloadFailed):
        fetched(tmp_path, url, bearer)
    monkeypatch.undo()
    monkeypatch.setattr("gradmarket.market.wire.framing.PIECE", PIECE)
    assert fetched(tmp_path, url, bearer) == DATA
    assert made.sent == len(DATA) + PIECE


@pytest.mark.parametrize("more", [b"", b"more than there is"])
def test_a_worker_that_was_killed_with_all_bytes_there_fetches_no_byte_of_the_right_ones(
    relay: tuple[Relay, str], bearer: dict[str, str], tmp_path: Path, more: bytes
) -> None:
    made, url = relay
    Cache(tmp_path, 10**6).part(DIGEST).write_bytes(DATA + more)
    assert fetched(tmp_path, url, bearer) == DATA
    assert made.sent == (300 if more else 0), "the last piece is the one that is too long"


def test_a_connection_that_breaks_in_a_piece_loses_that_piece(
    relay: tuple[Relay, str], bearer: dict[str, str], tmp_path: Path
) -> None:
    made, url = relay
    made.spoilt, made.cuts = {0, 4 * PIECE, 9 * PIECE}, [len(DATA), PIECE, 100]
    assert fetched(tmp_path, url, bearer) == DATA
    assert made.sent == len(DATA) + 3 * PIECE + 100


@given(
    spoilt=st.sets(st.integers(0, len(DATA) - 1), max_size=6),
    cuts=st.lists(st.integers(0, len(DATA)), max_size=5),
    again=st.integers(0, 2),
)
def test_only_spoilt_and_broken_pieces_are_sent_twice(
    relay: tuple[Relay, str], bearer: dict[str, str], spoilt: set[int], cuts: list[int], again: int
) -> None:
    made, url = relay
    made.spoilt, made.cuts, made.again, made.sent = spoilt, list(cuts), again, 0
    with TemporaryDirectory() as folder:
        assert fetched(Path(folder), url, bearer) == DATA
    pieces = len({place // PIECE for place in spoilt})
    assert made.sent <= len(DATA) + PIECE * (pieces + len(cuts) + (again if spoilt else 0))


ALIKE = b"".join(blake3(b"other").digest() for _ in range(11))
RIGHT = b"".join(blake3(DATA[start : start + PIECE]).digest() for start in range(0, len(DATA), PIECE))


@pytest.mark.parametrize(
    "said",
    [
        (404, b""),
        (200, b""),
        (200, ALIKE),
        (200, RIGHT[:-1]),
        (200, RIGHT[:64]),
        (200, RIGHT + bytes(32)),
        (200, RIGHT[32:] + RIGHT[:32]),
        (200, bytes(10**6)),
        (307, b""),
    ],
)
@pytest.mark.parametrize("cuts", leave_to_full([[5000] * 4, [], [5000]]))
def test_a_wrong_list_ends_in_one_sentence_and_does_no_harm_to_a_right_download(
    relay: tuple[Relay, str], bearer: dict[str, str], tmp_path: Path, said: tuple[int, bytes], cuts: list[int]
) -> None:
    made, url = relay
    made.spoilt, made.lists, made.cuts = {5 * PIECE + 9}, said, list(cuts)
    with pytest.raises(DownloadRefused, match=f"is not {DIGEST}$"):
        fetched(tmp_path, url, bearer)
    assert list(tmp_path.iterdir()) == []
    assert made.sent <= 2 * (len(DATA) + fetch.PIECE_TRIES * PIECE)
    made.spoilt, made.sent = set(), 0
    assert fetched(tmp_path, url, bearer) == DATA
    assert made.sent in (0, len(DATA)), "a right download heeds no list"


def test_a_list_of_the_spoilt_bytes_brings_in_no_other_bytes(
    relay: tuple[Relay, str], bearer: dict[str, str], tmp_path: Path
) -> None:
    """A relay that spoils the bytes spoils the list to match: the whole is checked against the blob's own digest."""
    made, url = relay
    wrong = bytes(byte ^ (place == 7) for place, byte in enumerate(DATA))
    listed = b"".join(blake3(wrong[start : start + PIECE]).digest() for start in range(0, len(wrong), PIECE))
    made.spoilt, made.lists = {7}, (200, listed)
    with pytest.raises(DownloadRefused, match="is not"):
        fetched(tmp_path, url, bearer)
    assert made.sent == len(DATA)


def test_a_relay_that_cuts_and_spoils_for_ever_is_given_up(
    relay: tuple[Relay, str], bearer: dict[str, str], tmp_path: Path
) -> None:
    made, url = relay
    made.spoilt, made.again, made.cuts = {5 * PIECE}, 10**6, [6000] * 1000
    with pytest.raises(DownloadRefused, match="is not"):
        fetched(tmp_path, url, bearer)
    assert made.sent <= 2 * (len(DATA) + fetch.PIECE_TRIES * PIECE)


def test_a_blob_without_a_list_of_pieces_is_downloaded_whole(
    relay: tuple[Relay, str], bearer: dict[str, str], tmp_path: Path, service: Service
) -> None:
    made, url = relay
    (service.context.settings.data / "blobs" / "pieces" / DIGEST.removeprefix("blake3:")).unlink()
    assert service.requester.get(LIST).status_code == 404
    made.spoilt = {7}
    with pytest.raises(DownloadRefused, match="is not"):
        fetched(tmp_path, url, bearer)
    made.spoilt = set()
    assert fetched(tmp_path, url, bearer) == DATA


def test_a_blob_that_is_dropped_takes_its_list_with_it(relay: tuple[Relay, str], service: Service) -> None:
    assert service.requester.get(LIST).content == RIGHT
    service.context.blobs.drop(DIGEST)
    assert service.requester.get(LIST).status_code == 404
