"""The curves of `make bench ONLY=bytes`: their bytes, the kept part of a killed run, and their pictures."""

from pathlib import Path

import pytest

from benchmarks.bytes import equal_loss, up_ratio
from benchmarks.pages import ROOT
from benchmarks.rig.byte_pictures import pictures
from benchmarks.rig.kept_curves import Curve, Kept, curves
from tests.lanes import FULL

PLAIN = Curve("data_parallel", 0, 1, 512, 400, 396, 396, [(20, 3.0), (40, 2.0)], 1.0)
OURS = Curve("ours", 0, 30, 512, 40, 396, 60, [(1, 2.5), (2, 1.9), (3, 1.8)], 1.0)


def test_bytes_are_those_of_all_replicas() -> None:
    assert PLAIN.uploads(40) == 4 * 40 * 400
    assert PLAIN.total(40) == 4 * 40 * 400 + 4 * 3 * 40 * 396
    assert OURS.total(2) == 4 * 2 * 40 + 4 * 3 * (396 + 60)


def test_uploads_are_compared_at_equal_tokens() -> None:
    assert up_ratio(PLAIN, OURS).value == 30 * 400 / 40


def test_bytes_are_counted_until_the_loss_is_reached() -> None:
    figures = {figure.name: figure.value for figure in equal_loss([PLAIN], [OURS])}
    assert figures["bytes.equal_loss_up"] == PLAIN.uploads(40) / OURS.uploads(2)
    assert figures["bytes.equal_loss_total"] == PLAIN.total(40) / OURS.total(2)
    assert figures["bytes.equal_loss_tokens"] == 60 / 40


def test_a_loss_that_is_never_reached_meets_no_target() -> None:
    never = Curve("ours", 0, 30, 512, 40, 396, 60, [(1, 2.5), (2, 2.4)], 1.0)
    up, total, *_ = equal_loss([PLAIN, PLAIN], [OURS, never])
    assert (up.value, total.value) == (0.0, 0.0)
    assert not up.ok
    assert not total.ok


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    place = tmp_path / "build" / "kept.jsonl"
    assert Kept(place).curve("one", lambda: PLAIN) == PLAIN
    with pytest.raises(ZeroDivisionError):
        Kept(place).curve("other", lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    kept = Kept(place)
    assert kept.curve("one", lambda: OURS).name == PLAIN.name
    assert kept.curve("other", lambda: OURS) == OURS
    kept.end(tmp_path / "curves" / "bytes.json")
    assert [curve.name for curve in curves(tmp_path / "curves" / "bytes.json")] == ["data_parallel", "ours"]
    assert not place.exists()


@FULL
def test_pictures_are_those_of_the_committed_curves() -> None:
    drawn = pictures()
    assert {name: (ROOT / "docs" / name).read_text() for name in drawn} == drawn
