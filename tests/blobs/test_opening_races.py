"""A file may be deleted between its opening and its lock: no upload is lost by that."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from requester.blobs._unfinished import KEPT_S, UnfinishedUploads
from requester.blobs.disk import DiskBlobs


def before_the_first_lock(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """`act` happens in the moment before the next lock."""
    lock, acts = fcntl.flock, [act]

    def first_act(file: Any, how: int) -> None:
        if acts:
            acts.pop()()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", first_act)


def test_a_starting_process_takes_no_blob_that_another_has_just_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = DiskBlobs(tmp_path)
    before_the_first_lock(monkeypatch, lambda: DiskBlobs(tmp_path))
    assert blobs.read(blobs.put(b"gradient")) == b"gradient"
    assert list((tmp_path / "incoming").iterdir()) == []


def test_a_start_does_not_delete_a_file_that_another_process_wrote_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "incoming" / "left"
    DiskBlobs(tmp_path)
    left.write_bytes(b"old")

    def replace() -> None:
        left.unlink()
        left.write_bytes(b"new")

    before_the_first_lock(monkeypatch, replace)
    DiskBlobs(tmp_path)
    assert left.read_bytes() == b"new"


def test_an_upload_that_began_anew_is_not_tidied_as_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = UnfinishedUploads(tmp_path, 1 << 20)
    path = uploads._build_upload_path("worker", "replica")
    path.write_bytes(b"old")
    os.utime(path, (path.stat().st_mtime - 2 * KEPT_S,) * 2)

    def begin_anew() -> None:
        path.unlink()
        path.write_bytes(b"new")

    before_the_first_lock(monkeypatch, begin_anew)
    uploads.delete_stale_uploads()
    assert path.read_bytes() == b"new"
