"""Interrupted uploads: kept for a while, within a bound, at the expense of the largest uploader alone."""

import os
import shutil
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from gradmarket.market.errors import Conflict
from requester.blobs._unfinished import KEPT_S, UnfinishedUploads
from requester.blobs.disk import DiskBlobs, Incoming


class Broken(Exception):
    """The connection."""


@pytest.fixture
def uploads(tmp_path: Path) -> UnfinishedUploads:
    return UnfinishedUploads(tmp_path, 100)


def broken(uploads: UnfinishedUploads, owner: str, name: str, length: int, start: int = 0, age: float = 0.0) -> None:
    with suppress(Broken), uploads.opened(owner, name, start) as file:
        file.write(bytes(length))
        raise Broken
    if age:
        then = time.time() - age
        os.utime(uploads._build_upload_path(owner, name), (then, then))


def test_an_interrupted_upload_is_kept_and_a_finished_one_is_not(uploads: UnfinishedUploads) -> None:
    broken(uploads, "a", "x", 10)
    assert uploads.received("a", "x") == 10
    broken(uploads, "a", "x", 10, start=10)
    assert uploads.received("a", "x") == 20
    with uploads.opened("a", "x", 20) as file:
        file.write(b"end")
    assert uploads.received("a", "x") == 0


def test_names_of_two_owners_are_two_uploads(uploads: UnfinishedUploads) -> None:
    broken(uploads, "a", "x", 10)
    assert uploads.received("b", "x") == 0
    with pytest.raises(Conflict, match="continue from 0"), uploads.opened("b", "x", 10):
        pass
    assert uploads.received("a", "x") == 10


@pytest.mark.parametrize("killed", [False, True])
def test_bytes_that_were_stored_are_never_continued(tmp_path: Path, killed: bool) -> None:
    """The blob and the upload are one file on the disk: what a later request wrote would change the blob."""
    blobs = DiskBlobs(tmp_path)
    with suppress(Broken), blobs.continued("a", "x", 0) as incoming:
        incoming.write(b"whole")
        digest = blobs.store_blob(incoming)
        raise Broken
    if killed:  # between storing and deleting: both names stay
        os.link(blobs.where(digest), blobs.unfinished._build_upload_path("a", "x"))
        assert blobs.unfinished.received("a", "x") == 0
        with pytest.raises(Conflict), blobs.continued("a", "x", 2):
            pass
    assert blobs.unfinished.received("a", "x") == 0
    with blobs.continued("a", "x", 0) as incoming:
        incoming.write(b"other")
    assert blobs.read(digest) == b"whole"


def test_an_upload_that_ended_while_it_was_stored_becomes_no_blob(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread goes on where a service that stops ends the request; another process may have opened it by then."""
    blobs = DiskBlobs(tmp_path)
    earlier, sync = blobs.continued("a", "x", 0), Incoming.sync
    incoming = earlier.__enter__()
    incoming.write(b"whole")
    digest = incoming.digest
    later = blobs.continued("a", "x", 0)

    def sync_then_end(mine: Incoming) -> None:
        sync(mine)
        with suppress(Broken):
            earlier.__exit__(Broken, Broken(), None)
        later.__enter__().write(b"other")

    monkeypatch.setattr(Incoming, "sync", sync_then_end)
    with pytest.raises(Conflict):
        blobs.store_blob(incoming)
    later.__exit__(None, None, None)
    assert not blobs.has(digest)


def test_no_discarded_upload_takes_a_blob_with_it(tmp_path: Path) -> None:
    blobs = DiskBlobs(tmp_path)
    with suppress(Broken), blobs.continued("a", "x", 0) as incoming:
        incoming.write(b"whole")
        digest = blobs.store_blob(incoming)
        incoming.discard()
        raise Broken
    assert blobs.read(digest) == b"whole"


def test_nothing_is_left_of_an_upload_that_never_came(uploads: UnfinishedUploads, tmp_path: Path) -> None:
    broken(uploads, "a", "x", 0)
    with suppress(Conflict), uploads.opened("a", "y", 5):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_second_writer_is_refused_and_cuts_nothing_off(uploads: UnfinishedUploads) -> None:
    broken(uploads, "a", "x", 10)
    with suppress(Broken), uploads.opened("a", "x", 10) as file:
        file.write(bytes(5))
        with pytest.raises(Conflict, match="another request"), uploads.opened("a", "x", 0):
            pass
        raise Broken
    assert uploads.received("a", "x") == 15


def test_a_thousand_half_uploads_are_kept_within_the_bound_and_cost_the_others_nothing(
    uploads: UnfinishedUploads, tmp_path: Path
) -> None:
    broken(uploads, "honest", "its only one", 30, age=60)
    for number in range(1000):
        broken(uploads, "hog", str(number), 30, age=50 - number / 1000)
    uploads.delete_stale_uploads()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 100
    assert uploads.received("honest", "its only one") == 30
    assert uploads.received("hog", "999") == 30, "the oldest go first"
    assert uploads.received("hog", "0") == 0


def test_one_that_is_written_does_not_count_as_deleted(uploads: UnfinishedUploads) -> None:
    """Else one large upload that goes on shields all that others left behind."""
    broken(uploads, "hog", "written", 500, age=90)
    broken(uploads, "other", "one", 40, age=60)
    broken(uploads, "other", "two", 40, age=50)
    with suppress(Broken), uploads.opened("hog", "written", 500):
        uploads.delete_stale_uploads()
        raise Broken
    assert [uploads.received("other", name) for name in ("one", "two")] == [0, 0]
    assert uploads.received("hog", "written") == 500


def test_half_of_a_small_disk_is_the_most(uploads: UnfinishedUploads, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(uploads, "a", "one", 40, age=60)
    broken(uploads, "a", "two", 40, age=50)
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=10))
    uploads.delete_stale_uploads()
    assert [uploads.received("a", name) for name in ("one", "two")] == [0, 40]


def test_stale_uploads_are_deleted_and_those_being_written_are_not(uploads: UnfinishedUploads) -> None:
    broken(uploads, "a", "old", 10, age=KEPT_S + 1)
    broken(uploads, "a", "young", 10, age=KEPT_S - 60)
    broken(uploads, "a", "written", 10, age=KEPT_S + 1)
    with suppress(Broken), uploads.opened("a", "written", 10):
        uploads.delete_stale_uploads()
        raise Broken
    assert [uploads.received("a", name) for name in ("old", "young", "written")] == [0, 10, 10]


def test_a_blob_that_was_continued_is_the_blob(tmp_path: Path) -> None:
    blobs, data = DiskBlobs(tmp_path), os.urandom(3_000_000)
    cuts = [0, 1_000_000, 2_500_000, len(data)]
    for start, stop in pairwise(cuts[:-1]):
        with suppress(Broken), blobs.continued("a", "x", start) as incoming:
            incoming.write(data[start:stop])
            raise Broken
    with blobs.continued("a", "x", cuts[-2]) as incoming:
        incoming.write(data[cuts[-2] :])
        digest = blobs.store_blob(incoming)
    assert digest == blobs.put(data)
    assert blobs.read(digest) == data
