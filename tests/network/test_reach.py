"""Servers in one's own network: only those that the owner names, each for its named purpose."""

from contextlib import closing
from pathlib import Path

import pytest
from pydantic import ValidationError

from gradmarket.compute.cache import Cache
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.terms import Digest, blob_digest
from gradmarket.network import DownloadFailed, DownloadRefused
from gradmarket.network.addresses import DATA_SERVERS, REACH, STORES, check_link_target
from tests.network.servers import serving
from worker.settings import WorkerSettings

ROWS = b"rows"
DIGEST = Digest(blob_digest(ROWS))


def fetched(folder: Path, market: str, link: str, **named: object) -> bytes:
    with closing(Fetcher(Cache(folder, 10**6), market, 10**6, **named)) as fetcher:  # type: ignore[arg-type]
        return bytes(fetcher.get(link, DIGEST))


def test_a_dataset_comes_from_a_server_in_the_worker_s_network_that_its_owner_named(tmp_path: Path) -> None:
    with serving(lambda *_asked: (200, ROWS)) as server, serving(lambda *_asked: (404, b"")) as market:
        link, origin = f"{server}/rows.npz", frozenset({server})
        with pytest.raises(DownloadRefused, match="GRADMARKET_WORKER_DATA_SERVERS"):
            fetched(tmp_path, market, link)
        with pytest.raises(DownloadRefused, match="GRADMARKET_WORKER_DATA_SERVERS"):
            fetched(tmp_path, market, link, stores=origin)
        assert fetched(tmp_path, market, link, data_servers=origin) == ROWS


def test_an_auditor_s_remedy_is_its_own(tmp_path: Path) -> None:
    with serving(lambda *_asked: (200, ROWS)) as server, pytest.raises(DownloadRefused, match="--reach"):
        fetched(tmp_path, "http://127.0.0.1:1", f"{server}/rows.npz", remedies=(REACH, REACH))


@pytest.mark.parametrize(("setting", "remedy"), [("stores", STORES), ("data_servers", DATA_SERVERS)])
def test_each_remedy_names_a_setting_that_there_is(setting: str, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(word for word in remedy.split() if word.startswith("GRADMARKET_"))
    monkeypatch.setenv(name, '["http://nas.lan:9000"]')
    assert getattr(WorkerSettings(), setting) == {"http://nas.lan:9000"}


@pytest.mark.parametrize(
    "origin", ["nas.lan:9000", "ftp://nas.lan", "http://nas.lan/path", "http://me@nas.lan", "http://["]
)
def test_a_malformed_origin_is_refused_in_a_sentence(origin: str) -> None:
    """A setting that never matches looks like one that does not help."""
    with pytest.raises(ValidationError, match="is not the origin of a server"):
        WorkerSettings(data_servers=frozenset({origin}))


@pytest.mark.parametrize(
    "link",
    [
        *("http://[", "http://[::1", f"https://[{'1' * 100}]/", "https://xn--/", "https://\ud800/", "https://a\0b"),
        *(f"https://{'a' * 64}.com/", "https://a..b/", "https://.", "//", "http:///x", "http://a:-1/", ""),
    ],
)
def test_a_link_that_is_no_address_is_refused_and_no_fault(link: str) -> None:
    """Malformed addresses of strangers: each was an error of Python's own, or might be."""
    with pytest.raises((DownloadRefused, DownloadFailed)):
        check_link_target(link, "", own=False)
