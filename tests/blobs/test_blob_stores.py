"""One contract for every store of blobs: a new one is held to it by being there."""

from pathlib import Path
from random import Random

import pytest

from gradmarket.market.errors import Conflict, NotFound, PayloadRefused, Refused
from gradmarket.market.terms import Digest, blob_digest
from gradmarket.market.wire import framing
from gradmarket.market.wire.framing import PIECE
from graphdoc import plugins
from graphdoc.encoding import Bytes
from requester import blobs as stores
from requester.blobs import Blobs
from requester.blobs.disk import map_file
from requester.settings import RequesterSettings

NAMES = plugins.list_plugin_names(stores.__name__)
DATA = bytes(range(256)) * 1000
ABSENT = Digest("blake3:" + "0" * 64)
NO_DIGESTS = ("", "blake3:", "blake3:" + "g" * 64, "../../etc/passwd", "blake3:" + "0" * 63)


@pytest.fixture
def settings(s3: str, bucket: str, tmp_path: Path) -> RequesterSettings:
    return RequesterSettings(data=tmp_path, s3_endpoint=s3, s3_bucket=bucket)  # type: ignore[arg-type]


@pytest.fixture
def store(name: str, settings: RequesterSettings) -> Blobs:
    return stores.open_blob_store(settings.model_copy(update={"blobs": name}))


@pytest.mark.parametrize("name", NAMES)
class TestStore:
    @pytest.mark.parametrize("data", [b"", b"x", DATA])
    def test_a_stored_blob_is_read_back(self, store: Blobs, data: bytes) -> None:
        digest = store.put(data)
        assert digest == blob_digest(data)
        assert store.has(digest)
        assert store.length(digest) == len(data)
        assert store.read(digest) == data
        with store.mapped(digest) as mapped:
            assert bytes(mapped) == data

    @pytest.mark.parametrize("length", [0, PIECE, PIECE + 1, 3 * PIECE])
    def test_a_longer_blob_has_a_list_of_its_pieces_until_it_is_deleted(self, store: Blobs, length: int) -> None:
        data = Random(length).randbytes(length)
        digest = store.put(data)
        if length > PIECE:
            assert store.pieces(digest) == framing.join_piece_digests(data)
            store.drop(digest)
        with pytest.raises(NotFound):
            store.pieces(digest)

    def test_an_absent_blob_is_not_found(self, store: Blobs) -> None:
        assert not store.has(ABSENT)
        for ask in (store.length, store.read, store.where):
            with pytest.raises(NotFound):
                ask(ABSENT)
        with pytest.raises(NotFound), store.mapped(ABSENT):
            pass

    @pytest.mark.parametrize("strange", NO_DIGESTS)
    def test_a_malformed_digest_is_not_found(self, store: Blobs, strange: str) -> None:
        with pytest.raises(NotFound):
            store.read(Digest(strange))
        with pytest.raises(NotFound):
            store.drop(Digest(strange))
        with pytest.raises(NotFound):
            store.pieces(Digest(strange))

    def test_pieces_are_kept_as_one_blob(self, store: Blobs) -> None:
        with store.receive() as incoming:
            for start in range(0, len(DATA), 999):
                incoming.write(DATA[start : start + 999])
            assert store.store_blob(incoming, blob_digest(DATA)) == blob_digest(DATA)
        assert store.read(blob_digest(DATA)) == DATA

    def test_other_bytes_than_expected_are_not_kept(self, store: Blobs) -> None:
        with store.receive() as incoming:
            incoming.write(b"other")
            with pytest.raises(Conflict):
                store.store_blob(incoming, blob_digest(DATA))
        assert not store.has(blob_digest(DATA))
        assert not store.has(blob_digest(b"other"))

    def test_a_received_file_that_is_not_stored_is_deleted(self, store: Blobs, settings: RequesterSettings) -> None:
        with store.receive() as incoming:
            incoming.write(DATA)
        assert not store.has(blob_digest(DATA))
        assert [path for path in settings.data.rglob("*") if path.is_file()] == []

    def test_the_same_twice_is_the_same(self, store: Blobs) -> None:
        assert store.put(DATA) == store.put(DATA)
        store.drop(blob_digest(DATA))
        assert not store.has(blob_digest(DATA))

    def test_dropping_what_is_not_there_changes_nothing(self, store: Blobs) -> None:
        kept = store.put(DATA)
        store.drop(ABSENT)
        assert store.read(kept) == DATA

    def test_another_that_opens_it_finds_what_was_put_and_disturbs_nothing(
        self, store: Blobs, name: str, settings: RequesterSettings
    ) -> None:
        with store.receive() as incoming:
            incoming.write(DATA)
            other = stores.open_blob_store(settings.model_copy(update={"blobs": name}))
            assert store.store_blob(incoming) == blob_digest(DATA)
        assert other.read(blob_digest(DATA)) == DATA

    def test_only_a_store_reached_past_the_service_has_upload_addresses(self, store: Blobs) -> None:
        assert (store.door("replica", 10, 60) is not None) == store.reached_past_us
        with pytest.raises(NotFound), store.left("replica", 10):
            pass

    def test_a_stored_blob_has_a_path_unless_it_is_reached_past_the_service(self, store: Blobs) -> None:
        place = store.where(store.put(DATA))
        assert isinstance(place, str) == store.reached_past_us
        assert isinstance(place, str) or place.read_bytes() == DATA


def test_another_name_is_refused_with_those_there_are(settings: RequesterSettings) -> None:
    with pytest.raises(Refused, match="disk, s3"):
        stores.open_blob_store(settings.model_copy(update={"blobs": "os"}))


def refuse_beside_a_view(data: Bytes, views: list[memoryview]) -> None:
    views.append(memoryview(data))
    raise PayloadRefused("this is what is told")


def test_a_view_that_outlives_its_block_spoils_nothing(tmp_path: Path) -> None:
    place = tmp_path / "blob"
    place.write_bytes(b"bytes")
    with map_file(place) as data:
        view = memoryview(data)
    assert bytes(view) == b"bytes"
    view.release()
    views: list[memoryview] = []
    with pytest.raises(PayloadRefused), map_file(place) as data:
        refuse_beside_a_view(data, views)


def test_incomplete_uploads_of_a_killed_process_are_deleted_at_the_start(tmp_path: Path) -> None:
    left = tmp_path / "blobs" / "incoming" / "0123"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half a blob")
    stores.open_blob_store(RequesterSettings(data=tmp_path))
    assert not left.exists()
