"""Uploads and downloads past the service: an upload counts only by its own digest."""

import random
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest

from contracts import deployment as deployments
from gradmarket.compute.cache import Cache
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.errors import Conflict, NotFound
from gradmarket.market.terms import blob_digest
from gradmarket.market.wire import framing
from gradmarket.market.wire.framing import PartAddress
from requester import blobs as stores
from requester.blobs.s3 import PART, S3Blobs, StoreDown
from requester.settings import RequesterSettings
from tests.api.api_service import serving
from tests.blobs.test_blob_stores import DATA
from tests.lanes import FULL, leave_to_full


@pytest.fixture
def store(s3: str, bucket: str, tmp_path: Path) -> S3Blobs:
    settings = RequesterSettings(data=tmp_path, blobs="s3", s3_endpoint=s3, s3_bucket=bucket)  # type: ignore[arg-type]
    opened = stores.open_blob_store(settings)
    assert isinstance(opened, S3Blobs)
    return opened


@pytest.fixture
def intruder(s3: str, store: S3Blobs) -> Any:
    """A client that may write to the bucket."""
    return boto3.client("s3", endpoint_url=s3, region_name="us-east-1")


def put(store: S3Blobs, data: bytes = DATA, length: int | None = None) -> httpx.Response:
    door = store.door("replica", len(data) if length is None else length, 60)
    assert door is not None
    return httpx.put(door, content=data)


def test_the_signed_address_serves_the_blob(store: S3Blobs) -> None:
    place = store.where(store.put(DATA))
    assert httpx.get(place).content == DATA
    assert httpx.get(place, headers={"range": "bytes=1000-"}).content == DATA[1000:]


def test_a_blob_uploaded_past_the_service_is_stored_without_a_second_upload(store: S3Blobs) -> None:
    assert put(store).is_success
    with store.left("replica", len(DATA)) as incoming:
        assert incoming.digest == blob_digest(DATA)
        with incoming.mapped() as data:
            assert bytes(data) == DATA
        assert store.store_blob(incoming, blob_digest(DATA)) == blob_digest(DATA)
    assert store.read(blob_digest(DATA)) == DATA


def test_a_door_is_empty_after_a_look(store: S3Blobs) -> None:
    put(store)
    with store.left("replica", len(DATA)):
        pass
    with pytest.raises(NotFound), store.left("replica", len(DATA)):
        pass
    assert not store.has(blob_digest(DATA))


def test_the_length_is_signed_with_the_address(store: S3Blobs) -> None:
    door = store.door("replica", 17, 60)
    assert door is not None
    signed = httpx.URL(door).params["X-Amz-SignedHeaders"].split(";")
    assert "content-length" in signed


@pytest.mark.parametrize("length", leave_to_full([len(DATA) - 1, len(DATA) + 1]))
def test_another_length_than_wanted_does_not_count(store: S3Blobs, length: int) -> None:
    put(store)
    with pytest.raises(Conflict, match="bytes were put there"), store.left("replica", length):
        pass
    with pytest.raises(NotFound), store.left("replica", length):
        pass


def test_one_replicas_door_is_not_anothers(store: S3Blobs) -> None:
    put(store)
    with pytest.raises(NotFound), store.left("another", len(DATA)):
        pass


def test_bytes_that_are_changed_after_the_look_are_not_kept(store: S3Blobs) -> None:
    put(store)
    with store.left("replica", len(DATA)) as incoming:
        put(store, DATA[::-1])
        with pytest.raises(Conflict, match="changed"):
            store.store_blob(incoming, blob_digest(DATA))
    assert not store.has(blob_digest(DATA))


def test_bytes_that_vanish_after_the_look_are_not_kept(store: S3Blobs, intruder: Any, bucket: str) -> None:
    put(store)
    with store.left("replica", len(DATA)) as incoming:
        for found in intruder.list_objects_v2(Bucket=bucket)["Contents"]:
            intruder.delete_object(Bucket=bucket, Key=found["Key"])
        with pytest.raises(NotFound):
            store.store_blob(incoming)


def test_a_blob_that_somebody_overwrote_is_not_believed(store: S3Blobs, intruder: Any, bucket: str) -> None:
    digest = store.put(DATA)
    intruder.put_object(Bucket=bucket, Key="blobs/" + digest.removeprefix("blake3:"), Body=b"evil")
    with pytest.raises(StoreDown, match="is blake3"):
        store.read(digest)


LONG = random.Random(0).randbytes(2 * PART + 1000)
"""Three parts."""


def put_part(part: PartAddress, data: bytes = LONG) -> httpx.Response:
    return httpx.put(part.address, content=data[part.start : part.start + part.length])


def test_a_worker_mends_a_download_from_the_store(  # type: ignore[no-untyped-def]
    s3: str, bucket: str, tmp_path: Path, anvil, deployment
) -> None:
    """All bytes are there and one of them is wrong; the list comes from the service, the piece from the store."""
    deployments.write_deployment(deployment, tmp_path / "deployment.json")
    here: dict[str, Any] = {"blobs": "s3", "s3_endpoint": s3, "s3_bucket": bucket, "rpc": anvil.url}
    cache, fetched = Cache(tmp_path / "cache", 2**26), list[httpx.URL]()
    with serving(RequesterSettings(data=tmp_path, **here)) as service:
        assert service.requester.put(f"/v1/blobs/{blob_digest(LONG)}", content=LONG).status_code == 201
        bearer = {"authorization": service.worker()[1].headers["Authorization"]}
        cache.part(blob_digest(LONG)).write_bytes(b"!" + LONG[1:])
        with closing(Fetcher(cache, service.url, 2**26, bearer=lambda: bearer, stores=frozenset({s3}))) as fetcher:
            fetcher._http.event_hooks = {"response": [lambda response: fetched.append(response.url)]}
            assert fetcher.blob(blob_digest(LONG)) == LONG
    assert [url.path.split("/")[-1] == "pieces" for url in fetched] == [False, False, True, False, False]


def test_a_long_upload_has_an_address_for_each_part_and_none_for_the_whole(store: S3Blobs) -> None:
    assert store.door("replica", len(LONG), 60) is None
    parts = store.missing_parts("replica", len(LONG))
    assert [(part.start, part.length) for part in parts] == [(0, PART), (PART, PART), (2 * PART, 1000)]
    signed = httpx.URL(parts[0].address).params["X-Amz-SignedHeaders"].split(";")
    assert "content-length" in signed


def test_parts_that_came_need_not_come_again(store: S3Blobs, s3: str, bucket: str, tmp_path: Path) -> None:
    """Asked of another process, too."""
    first, second, third = store.missing_parts("replica", len(LONG))
    assert put_part(second).is_success
    settings = RequesterSettings(data=tmp_path / "b", blobs="s3", s3_endpoint=s3, s3_bucket=bucket)  # type: ignore[arg-type]
    left = stores.open_blob_store(settings).missing_parts("replica", len(LONG))
    assert [part.start for part in left] == [first.start, third.start]
    for part in left:
        assert put_part(part).is_success
    assert store.missing_parts("replica", len(LONG)) == []
    with store.left("replica", len(LONG)) as incoming:
        assert store.store_blob(incoming, blob_digest(LONG)) == blob_digest(LONG)
    assert store.read(blob_digest(LONG)) == LONG
    assert store.pieces(blob_digest(LONG)) == framing.join_piece_digests(LONG)


def test_an_upload_that_lacks_a_part_is_not_found_and_keeps_the_others(store: S3Blobs) -> None:
    first, *others = store.missing_parts("replica", len(LONG))
    put_part(first)
    with pytest.raises(NotFound, match="only 1 of"), store.left("replica", len(LONG)):
        pass
    assert [part.start for part in store.missing_parts("replica", len(LONG))] == [part.start for part in others]


def test_parts_of_one_replica_are_not_anothers(store: S3Blobs) -> None:
    for part in store.missing_parts("replica", len(LONG)):
        put_part(part)
    assert len(store.missing_parts("another", len(LONG))) == 3
    with pytest.raises(NotFound), store.left("another", len(LONG)):
        pass


@FULL
def test_a_part_that_is_changed_after_the_look_changes_nothing(store: S3Blobs) -> None:
    parts = store.missing_parts("replica", len(LONG))
    for part in parts:
        put_part(part)
    with store.left("replica", len(LONG)) as incoming:
        assert not put_part(parts[0], bytes(len(LONG))).is_success, "its address takes nothing any more"
        assert store.store_blob(incoming, blob_digest(LONG)) == blob_digest(LONG)
    assert store.read(blob_digest(LONG)) == LONG


def test_a_store_that_does_not_answer_is_an_error_of_its_own(tmp_path: Path, bucket: str) -> None:
    settings = RequesterSettings(data=tmp_path, blobs="s3", s3_endpoint="http://127.0.0.1:1", s3_bucket=bucket)  # type: ignore[arg-type]
    with pytest.raises(StoreDown):
        stores.open_blob_store(settings)


def test_addresses_are_made_for_the_public_name(s3: str, bucket: str, tmp_path: Path) -> None:
    settings = RequesterSettings(
        data=tmp_path, blobs="s3", s3_endpoint=s3, s3_public_endpoint="https://store.example", s3_bucket=bucket
    )  # type: ignore[arg-type]
    store = stores.open_blob_store(settings)
    assert str(store.where(store.put(DATA))).startswith(f"https://store.example/{bucket}/blobs/")
    assert (store.door("replica", 1, 60) or "").startswith(f"https://store.example/{bucket}/doors/")
