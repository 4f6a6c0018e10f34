"""Downloads: by digest, resumed, bounded, and never into this machine's own network."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.compute import fetch
from gradmarket.compute.cache import Cache
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.terms import Digest, blob_digest
from gradmarket.network import DownloadFailed, DownloadRefused
from gradmarket.network.addresses import check_link_target, is_public
from tests.kit.web_server import serving_by
from tests.patience import PATIENCE_S, wait_until
from tests.processes import free_port

DATA = bytes(range(256)) * 400
PUBLIC = "93.184.216.34"


class Site(BaseHTTPRequestHandler):
    """`pages`: path -> bytes, or another address to go to. `cut`: bytes after which an answer breaks off, once.

    `sessions`: bytes after which it is silent until the test is over, once; `held`: when it answers, once.
    """

    pages: ClassVar[dict[str, bytes | str]] = {}
    cut: ClassVar[list[int]] = []
    sessions: ClassVar[list[int]] = []
    held: ClassVar[list[Callable[[], bool]]] = []
    over: ClassVar[threading.Event]
    statuses: ClassVar[list[int]] = []
    headers_sent: ClassVar[dict[str, str]] = {}
    seen: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("range")
        type(self).seen.append((self.path, wanted))
        page = self.pages.get(self.path)
        if self.held:
            wait_until(self.held.pop())
        if self.statuses:
            self.send_error(self.statuses.pop())
        elif isinstance(page, str):
            self.send_response(302)
            self.send_header("location", page)
            self.end_headers()
        elif page is None:
            self.send_error(404)
        else:
            self._send(page, int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0)

    def _send(self, page: bytes, start: int) -> None:
        if start >= len(page):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("content-length", str(len(page) - start))
        if start:
            self.send_header("content-range", f"bytes {start}-{len(page) - 1}/{len(page)}")
        for name, value in self.headers_sent.items():
            self.send_header(name, value)
        self.end_headers()
        end = start + self.cut.pop() if self.cut else len(page)
        if self.sessions:
            self.wfile.write(page[start : self.sessions.pop()])
            self.wfile.flush()
            self.over.wait()
            return
        self.wfile.write(page[start:end])


@pytest.fixture
def origin() -> Iterator[str]:
    Site.pages, Site.cut, Site.statuses, Site.headers_sent, Site.seen = {}, [], [], {}, []
    Site.sessions, Site.held, Site.over = [], [], threading.Event()
    with serving_by(Site) as url:
        yield url
        Site.over.set()


@pytest.fixture
def fetcher(origin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fetcher]:
    monkeypatch.setattr(fetch, "FIRST_PAUSE_S", 0.001)
    made = Fetcher(Cache(tmp_path, 10**6), origin, limit=200_000)
    yield made
    made.close()


def serve(data: bytes = DATA) -> Digest:
    Site.pages[f"/v1/blobs/{blob_digest(data)}"] = data
    return blob_digest(data)


def test_a_blob_is_fetched_once_and_then_read_from_the_cache(fetcher: Fetcher) -> None:
    digest = serve()
    assert fetcher.blob(digest) == fetcher.blob(digest) == DATA
    assert len(Site.seen) == 1


def test_a_download_that_breaks_off_is_resumed(fetcher: Fetcher) -> None:
    digest = serve()
    Site.cut += [30_000, 50_000]
    assert fetcher.blob(digest) == DATA
    assert [wanted for _, wanted in Site.seen] == [None, "bytes=50000-", "bytes=80000-"]


@pytest.mark.parametrize(("step_s", "said"), [(100.0, "less than 1024 bytes a second"), (0.0, None)])
def test_a_download_that_drips_is_given_up(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch, step_s: float, said: str | None
) -> None:
    """A byte now and then, which looks like progress, held a worker for an hour."""
    monkeypatch.setattr(fetch, "time", SimpleNamespace(monotonic=count(0.0, step_s).__next__))
    with pytest.raises(DownloadFailed, match=said) if said else nullcontext():
        fetcher.blob(serve())


@pytest.mark.parametrize(("piece", "pause_s", "asked"), [(1, 10.0, 8), (20_000, 10.0, 6)])
def test_only_what_comes_at_a_pace_is_progress(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch, piece: int, pause_s: float, asked: int
) -> None:
    """Each connection breaks off after a piece: it is given up after a minute of bytes, and not of kilobytes."""
    now = [0.0]
    monkeypatch.setattr(fetch, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(fetcher, "_pause", lambda _seconds: now.__setitem__(0, now[0] + pause_s))
    digest = serve()
    Site.cut += [piece] * 20
    with suppress(DownloadFailed):
        assert fetcher.blob(digest) == DATA
    assert len(Site.seen) == asked


@pytest.mark.parametrize("link", ["/v1/blobs/{}", "/partitions/{}"])
def test_a_download_that_is_cut_off_at_99_percent_fetches_one_percent(fetcher: Fetcher, link: str) -> None:
    there = len(DATA) * 99 // 100
    Site.pages[link.format("x")], Site.cut[:] = DATA, [there]
    assert fetcher.get(link.format("x"), blob_digest(DATA), len(DATA)) == DATA
    assert [wanted for _, wanted in Site.seen] == [None, f"bytes={there}-"]


def test_a_part_that_was_left_by_a_killed_worker_is_resumed(fetcher: Fetcher, tmp_path: Path) -> None:
    digest = serve()
    Cache(tmp_path, 10**6).part(digest).write_bytes(DATA[:1000])
    assert fetcher.blob(digest) == DATA
    assert Site.seen[0][1] == "bytes=1000-"


@pytest.mark.parametrize("part", [b"other bytes", DATA + b"more", DATA])
def test_a_wrong_part_is_thrown_away_and_fetched_anew(fetcher: Fetcher, tmp_path: Path, part: bytes) -> None:
    digest = serve()
    Cache(tmp_path, 10**6).part(digest).write_bytes(part)
    assert fetcher.blob(digest) == DATA


def test_other_bytes_than_named_are_refused_and_not_kept(fetcher: Fetcher, tmp_path: Path) -> None:
    Site.pages[f"/v1/blobs/{blob_digest(DATA)}"] = DATA[:-1] + b"!"
    with pytest.raises(DownloadRefused, match="is not"):
        fetcher.blob(blob_digest(DATA))
    assert list(tmp_path.iterdir()) == []


def test_a_document_or_manifest_of_any_length_is_not_taken_into_memory(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "DESCRIBED_BYTES", len(DATA) - 1)
    digest = serve()
    with pytest.raises(DownloadRefused, match="longer than"):
        fetcher.fetch_described(digest)
    assert fetcher.blob(digest) == DATA
    with pytest.raises(DownloadRefused, match="longer than"):
        fetcher.fetch_described(digest)  # it is in the cache now
    monkeypatch.setattr(fetch, "DESCRIBED_BYTES", len(DATA))
    assert fetcher.fetch_described(digest) == DATA


class CopiedChunk(bytes):
    """Notes how many received bytes are copied to add it to them."""

    copied: ClassVar[list[int]] = []

    def __radd__(self, received: bytes) -> bytes:
        if isinstance(received, bytes):
            self.copied.append(len(received))
        return NotImplemented


def test_an_answer_in_many_chunks_is_not_copied_at_each(fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an archive's index of 64 MiB keeps an auditor at work for minutes."""
    Site.pages["/index"] = DATA
    monkeypatch.setattr(fetch, "_in_pace", lambda response: map(CopiedChunk, response.iter_raw(1000)))
    assert fetcher.small("/index", len(DATA)) == DATA
    assert CopiedChunk.copied == []
    with pytest.raises(DownloadRefused, match="longer than"):
        fetcher.small("/index", len(DATA) - 1)


def test_more_bytes_than_declared_are_refused(fetcher: Fetcher, tmp_path: Path) -> None:
    digest = serve()
    with pytest.raises(DownloadRefused, match="longer than"):
        fetcher.get(f"/v1/blobs/{digest}", digest, len(DATA) - 1)
    assert list(tmp_path.iterdir()) == []


def test_fewer_bytes_than_declared_are_refused(fetcher: Fetcher) -> None:
    digest = serve()
    with pytest.raises(DownloadRefused, match="declared"):
        fetcher.get(f"/v1/blobs/{digest}", digest, len(DATA) + 1)


def test_more_than_allowed_is_not_even_asked_for(fetcher: Fetcher) -> None:
    with pytest.raises(DownloadRefused, match="more than was allowed"):
        fetcher.get("/big", blob_digest(DATA), 200_001)
    assert Site.seen == []


def test_a_compressed_answer_is_refused(fetcher: Fetcher) -> None:
    digest = serve()
    Site.headers_sent["content-encoding"] = "gzip"
    with pytest.raises(DownloadRefused, match="compressed"):
        fetcher.blob(digest)


def test_a_busy_place_is_asked_again_and_a_missing_blob_is_not(fetcher: Fetcher) -> None:
    digest = serve()
    Site.statuses += [503, 502]
    assert fetcher.blob(digest) == DATA
    with pytest.raises(DownloadRefused, match="404"):
        fetcher.blob(blob_digest(b"nobody has it"))


def test_a_place_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "PATIENCE_S", 0.0)
    with pytest.raises(DownloadFailed):
        Fetcher(Cache(tmp_path, 10**6), "http://127.0.0.1:1", limit=10**6).blob(blob_digest(DATA))


def test_redirects_within_the_market_are_followed_and_bounded(fetcher: Fetcher) -> None:
    digest = serve()
    Site.pages["/moved"] = f"/v1/blobs/{digest}"
    assert fetcher.get("/moved", digest) == DATA
    Site.pages["/round"] = "/round"
    with pytest.raises(DownloadRefused, match="redirects"):
        fetcher.get("/round", blob_digest(b"elsewhere"))


@pytest.mark.parametrize(
    "to", ["http://127.0.0.1:1/", "http://169.254.169.254/latest", "http://[::1]/", "file:///etc/passwd"]
)
def test_redirects_into_the_own_network_are_refused(fetcher: Fetcher, to: str) -> None:
    Site.pages["/moved"] = to
    with pytest.raises(DownloadRefused):
        fetcher.get("/moved", blob_digest(DATA))


@pytest.mark.parametrize(
    "link",
    [
        "http://127.0.0.1/x",
        "http://localhost:8545/",
        "http://10.0.0.1/x",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]:80/",
        "http://[fe80::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://0.0.0.0/",
        "http://100.64.0.1/",
        "http://224.0.0.1/",
        "http://2130706433/",
        "http://0x7f.1/",
        "ftp://example.org/x",
        "file:///etc/passwd",
        "http://user:password@example.org/",
        "//127.0.0.1/x",
        "http:///x",
    ],
)
def test_links_into_the_own_network_are_refused(link: str) -> None:
    with pytest.raises(DownloadRefused):
        check_link_target(link, "https://market.example")


def test_a_public_link_is_fetched_from_the_address_that_was_checked() -> None:
    asked: list[tuple[str, int]] = []

    def look_up(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return [PUBLIC]

    found = check_link_target("https://data.example/part?x=1", "https://market.example", look_up)
    assert str(found.url) == f"https://{PUBLIC}/part?x=1"
    assert (found.host, found.own, asked) == ("data.example", False, [("data.example", 443)])


def test_a_name_with_one_private_address_among_public_ones_is_refused() -> None:
    with pytest.raises(DownloadRefused, match="not a public address"):
        check_link_target(
            "http://rebinding.example/", "https://market.example", lambda _host, _port: [PUBLIC, "10.0.0.1"]
        )


def test_the_markets_own_origin_is_allowed_where_its_owner_put_it_but_no_other_port() -> None:
    market = "http://127.0.0.1:8700"
    assert check_link_target("/v1/blobs/a", market).own
    assert check_link_target("http://127.0.0.1:8700/v1/blobs/a", market).own
    with pytest.raises(DownloadRefused):
        check_link_target("http://127.0.0.1:8545/", market)
    with pytest.raises(DownloadRefused):
        check_link_target("/v1/blobs/a", market, own=False)


@pytest.mark.parametrize(
    ("link", "own"),
    [
        ("/v1/blobs/a", True),
        ("v1/blobs/a", True),
        ("https://host.example/shop/v1/blobs/a", True),
        ("https://host.example/shop", True),
        ("https://host.example/shop/a/../v1", True),
        ("https://host.example/shop/a/%2e%2e/v1", True),
        ("https://host.example/other/v1/blobs/a", False),
        ("https://host.example/shopping/v1", False),
        ("https://host.example/", False),
        ("https://host.example/Shop/v1", False),
        ("https://host.example/shop/../other", False),
        ("/../other", False),
        ("../other", False),
        ("/%2e%2e/other", False),
        ("/%2E./other", False),
        ("/..%2fother", False),
        ("/%252e%252e/other", False),
        ("/..%5cother", False),
        ("/a/.%2e/..%2F..%2fother?x=/shop/", False),
    ],
)
def test_a_service_under_a_path_is_its_own_and_no_other_of_its_host_gets_its_session(link: str, own: bool) -> None:
    assert check_link_target(link, "https://host.example/shop", lambda _host, _port: [PUBLIC]).own is own
    if not own:
        with pytest.raises(DownloadRefused, match="not a public address"):
            check_link_target(link, "https://host.example/shop", lambda _host, _port: ["127.0.0.1"])


@pytest.mark.parametrize("port", [0, 65536, 10**30])
def test_a_port_that_no_server_has_is_refused(port: int) -> None:
    """Beyond a C long the look-up would raise OverflowError, which no download expects."""
    with pytest.raises(DownloadRefused, match="port"):
        check_link_target(f"https://{PUBLIC}:{port}/rows", "https://host.example")
    assert check_link_target(f"https://{PUBLIC}:65535/rows", "https://host.example").url.port == 65535


@given(st.integers(0, 2**32 - 1).map(lambda number: ".".join(str(byte) for byte in number.to_bytes(4, "big"))))
def test_a_mapped_address_is_no_more_public_than_the_address(address: str) -> None:
    number = int.from_bytes(bytes(map(int, address.split("."))), "big")
    mapped, nat = f"::ffff:{address}", f"64:ff9b::{number >> 16:x}:{number & 0xFFFF:x}"
    assert is_public(nat) <= is_public(address)
    assert is_public(mapped) <= is_public(address)


@pytest.mark.parametrize("inside", ["::10.0.0.1", "::ffff:0:10.0.0.1", "64:ff9b:1::10.0.0.1", "fec0::1", "5f00::1"])
def test_ipv6_that_no_public_network_routes_is_not_public(inside: str) -> None:
    assert not is_public(inside)
    assert is_public("2606:4700:4700::1111")


def test_a_host_name_is_not_a_public_address() -> None:
    assert not is_public("market.example")


def put(cache: Cache, data: bytes) -> Digest:
    with cache.open_part(blob_digest(data), len(data)) as part:
        part.write_bytes(data)
        cache.finish_part(blob_digest(data))
    return blob_digest(data)


def taken(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_the_least_recently_used_is_thrown_out_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 250)
    blobs = [bytes([number]) * 100 for number in range(3)]
    for number, blob in enumerate(blobs):
        put(cache, blob)
        if number == 1:
            assert cache.read(blob_digest(blobs[0])) == blobs[0]
    assert [cache.read(blob_digest(blob)) is not None for blob in blobs] == [True, False, True]


def test_a_running_download_keeps_its_room_and_is_not_evicted(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 250)
    with cache.open_part(blob_digest(b"first"), 200) as first:
        first.write_bytes(b"f")
        with pytest.raises(DownloadFailed, match="no room"):
            put(cache, b"s" * 100)
        put(cache, b"s" * 50)
        assert first.exists()
    put(cache, b"t" * 100)
    assert taken(tmp_path) <= 250
    with pytest.raises(DownloadRefused, match="more than the cache may take"):
        put(cache, bytes(251))


@given(sizes=st.lists(st.integers(1, 120), min_size=1, max_size=12))
def test_the_cache_never_takes_more_than_its_limit(sizes: list[int]) -> None:
    with TemporaryDirectory() as folder:
        cache = Cache(Path(folder), 250)
        for number, size in enumerate(sizes):
            digest = put(cache, bytes([number]) * size)
            assert taken(Path(folder)) <= 250
            assert cache.read(digest) is not None


def test_a_download_of_unknown_length_makes_room_as_it_grows(origin: str, tmp_path: Path) -> None:
    cache = Cache(tmp_path, len(DATA) + 100)
    put(cache, b"old" * 100)
    with closing(Fetcher(cache, origin, limit=200_000)) as fetcher:
        assert fetcher.blob(serve()) == DATA
    assert taken(tmp_path) == len(DATA)


def test_bytes_that_changed_on_disk_are_thrown_away(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 1000)
    put(cache, b"good")
    cache.path(blob_digest(b"good")).write_bytes(b"evil")
    assert cache.read(blob_digest(b"good")) is None
    assert not cache.path(blob_digest(b"good")).exists()


def test_several_threads_that_want_the_same_download_it_once(fetcher: Fetcher) -> None:
    digest = serve()
    wanted = list[Digest]()
    Site.held.append(lambda: len(wanted) == 4)

    def want(digest: Digest) -> bytes:
        wanted.append(digest)
        return fetcher.blob(digest)

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(want, [digest] * 4))
    assert answers == [DATA] * 4
    assert len(Site.seen) == 1


SERVER = """
import sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer

data, cut = bytes(range(256)) * 400, int(sys.argv[2])

class Site(BaseHTTPRequestHandler):
    def do_GET(self):
        start = int(self.headers.get("range", "bytes=0-")[6:-1])
        self.send_response(206 if start else 200)
        self.send_header("content-length", str(len(data) - start))
        self.send_header("content-range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        self.wfile.write(data[start : start + cut])
        self.wfile.flush()
        print(start, flush=True)
        if cut < len(data) - start:
            threading.Event().wait()

    def log_message(self, *_):
        pass

HTTPServer(("127.0.0.1", int(sys.argv[1])), Site).serve_forever()
"""


def test_a_server_that_is_killed_half_way_is_gone_on_with_when_another_stands_there(fetcher: Fetcher) -> None:
    port = free_port()
    there = Fetcher(fetcher._cache, f"http://127.0.0.1:{port}", limit=200_000)
    command = [sys.executable, "-c", SERVER, str(port)]
    with closing(there), ThreadPoolExecutor(1) as thread:
        first = subprocess.Popen([*command, "70000"], stdout=subprocess.PIPE, text=True)
        fetched = thread.submit(there.blob, blob_digest(DATA))
        assert first.stdout is not None
        assert first.stdout.readline() == "0\n"
        first.kill()
        first.wait()
        second = subprocess.Popen([*command, "1000000"], stdout=subprocess.PIPE, text=True)
        try:
            assert fetched.result(PATIENCE_S) == DATA
            assert second.stdout is not None
            assert int(second.stdout.readline()) > 0
        finally:
            second.kill()
            second.wait()
        first.stdout.close()
        second.stdout.close()


FETCH = """
import sys
from pathlib import Path
from gradmarket.compute.cache import Cache
from gradmarket.compute.fetch import Fetcher
Fetcher(Cache(Path(sys.argv[1]), 10**6), sys.argv[2], limit=200_000).blob(sys.argv[3])
"""


def test_a_worker_that_is_killed_half_way_goes_on_where_it_was(origin: str, tmp_path: Path) -> None:
    digest = serve()
    Site.sessions.append(60_000)
    cache = Cache(tmp_path, 10**6)
    with subprocess.Popen([sys.executable, "-c", FETCH, str(tmp_path), origin, digest]) as killed:
        wait_until(lambda: cache.part(digest).exists() and cache.part(digest).stat().st_size >= 32_000)
        killed.kill()
    with closing(Fetcher(Cache(tmp_path, 10**6), origin, limit=200_000)) as fetcher:
        assert fetcher.blob(digest) == DATA
    assert Site.seen[-1][1] is not None


def test_another_process_s_download_is_not_evicted(tmp_path: Path) -> None:
    """Two caches of one folder, as two processes have; a flock is the open file's, so one process shows it too."""
    here, there, digest = Cache(tmp_path, 250), Cache(tmp_path, 250), blob_digest(b"another's")
    with here.alone(digest):
        here.part(digest).write_bytes(bytes(200))
        with pytest.raises(DownloadFailed, match="leave no room"):
            there.make_room(there.part(blob_digest(b"own")), 100)
    there.make_room(there.part(blob_digest(b"own")), 100)
    assert not here.part(digest).exists()


def test_the_lock_of_a_killed_process_stops_nobody(fetcher: Fetcher, tmp_path: Path) -> None:
    digest = serve()
    cache = Cache(tmp_path, 10**6)
    cache.part(digest).write_bytes(DATA[:10])
    (tmp_path / f"{digest.removeprefix('blake3:')}.lock").touch()
    cache.make_room(cache.part(blob_digest(b"own")), 10**6)
    assert not cache.part(digest).exists()
    assert fetcher.blob(digest) == DATA
    assert list(tmp_path.glob("*.lock")) == []


def test_a_cache_whose_files_vanish_meanwhile_goes_on(fetcher: Fetcher, tmp_path: Path) -> None:
    digest = serve()
    fetcher.blob(digest)
    Cache(tmp_path, 10**6).path(digest).unlink()
    assert fetcher.held(digest, len(DATA)) is None
    assert fetcher.blob(digest) == DATA


def test_a_full_disk_is_named_by_the_file_that_has_no_room(tmp_path: Path) -> None:
    cache, digest = Cache(tmp_path, 10**6), blob_digest(DATA)
    part = cache.part(digest)
    part.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught, cache.open_part(digest, len(DATA)):
        part.write_bytes(DATA)
    assert caught.value.filename == str(part)


def test_a_file_of_the_cache_that_is_too_long_is_not_read(fetcher: Fetcher) -> None:
    digest = serve()
    fetcher.blob(digest)
    assert fetcher.held(digest, len(DATA)) == DATA
    assert fetcher.held(digest, len(DATA) - 1) is None
