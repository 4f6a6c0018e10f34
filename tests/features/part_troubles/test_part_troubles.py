"""A database that is stopped, or a full disk: one line when it goes and one when it is back."""

import errno
import json
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import structlog
from sqlalchemy.exc import OperationalError

from requester.features import part_troubles
from requester.features.part_troubles import BLOBS, BROKER, CHAIN, DATABASE, PartTroubles, PartTroublesFeature, part_of
from tests.requester.test_logs import Written, capture_lines

STOPPED = OperationalError("SELECT 1", {}, Exception("connection refused\nIs the server running?"))
FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the process' troubles see."""
    now = [100.0]
    monkeypatch.setattr(part_troubles, "TROUBLES", PartTroubles(lambda: now[0]))
    return now


@pytest.fixture
def written() -> Iterator[Written]:
    with capture_lines(PartTroublesFeature.log_processors, PartTroublesFeature.log_filters) as lines:
        yield lines


def fail(error: Exception) -> None:
    log = structlog.get_logger("gradmarket.engine")
    for event in ("stage failed", "the look-out cannot look"):
        try:
            raise error
        except Exception:
            log.exception(event)
            logging.getLogger("sqlalchemy.pool").exception("theirs")
    structlog.get_logger("gradmarket.api").error("storage failed", exc_info=error)


@pytest.mark.parametrize(("error", "part"), [(STOPPED, DATABASE), (FULL, BLOBS)])
def test_a_failed_part_is_logged_once_and_once_when_it_is_back(
    written: Written,
    time: list[float],
    error: Exception,
    part: str,
) -> None:
    for _ in range(50):
        fail(error)
        time[0] += 0.1
    (gone,) = [json.loads(line) for line in written.writes]
    assert (gone["event"], gone["part"], gone["level"]) == ("stage failed", part, "error")
    assert "\n" not in gone["error"]
    assert "exception" not in gone

    tries = []
    part_troubles.probe_failed_parts({part: lambda: tries.append(1) or "still gone"})  # type: ignore[func-returns-value]
    part_troubles.probe_failed_parts({part: lambda: tries.append(1) or ""})  # type: ignore[func-returns-value]
    assert (len(tries), len(written.writes)) == (1, 1)
    time[0] += 1.0
    for _ in range(3):
        part_troubles.probe_failed_parts({part: lambda: ""})
    (back,) = [json.loads(line) for line in written.writes[1:]]
    assert (back["event"], back["of"], back["after_s"]) == ("it is back", part, 6.0)
    fail(error)
    assert len(written.writes) == 3


@pytest.mark.parametrize("part", [CHAIN, BROKER])
def test_a_part_that_is_seen_to_work_needs_no_probe(written: Written, time: list[float], part: str) -> None:
    for attempt in range(60):
        structlog.get_logger("gradmarket.parts").error("it does not work", part=part, error=f"attempt {attempt}")
        logging.getLogger("celery.worker.consumer.consumer").error("consumer: Cannot connect: trying again")
        part_troubles.probe_failed_parts({})
        time[0] += 1.0
    assert len(written.writes) == 1 + (part == CHAIN), "the broker's own line is told once, too"
    for _ in range(3):
        part_troubles.note_recovery(part)
    back = json.loads(written.writes[-1])
    assert (back["event"], back["of"], back["after_s"]) == ("it is back", part, 60.0)


def test_an_error_of_no_part_is_logged_with_its_traceback_each_time(written: Written, time: list[float]) -> None:
    for _ in range(2):
        try:
            raise ZeroDivisionError("a bug")
        except ZeroDivisionError:
            structlog.get_logger("gradmarket.engine").exception("stage failed")
    lines = [json.loads(line) for line in written.writes]
    assert len(lines) == 2
    assert all("Traceback" in line["exception"] for line in lines)
    assert time[0] == 100.0


def test_parts_fail_and_come_back_by_themselves(time: list[float]) -> None:
    troubles = PartTroubles(lambda: time[0])
    assert troubles.begins(DATABASE)
    time[0] += 1
    assert troubles.begins(BLOBS)
    assert not troubles.begins(DATABASE)
    time[0] += 2
    assert troubles.over(DATABASE) == 3
    assert troubles.over(DATABASE) is None
    assert troubles.to_probe() == (BLOBS,)


def test_a_statement_that_is_wrong_is_no_outage(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a")) as database, pytest.raises(sqlite3.OperationalError) as wrong:
        database.execute("SELECT * FROM nowhere")
    assert part_of(OperationalError("", {}, wrong.value)) is None
    (tmp_path / "b").mkdir()
    with pytest.raises(sqlite3.OperationalError) as out:
        sqlite3.connect(tmp_path / "b")
    assert part_of(OperationalError("", {}, out.value)) == DATABASE


@pytest.mark.parametrize("error", [FileNotFoundError(errno.ENOENT, "x"), ValueError(), None])
def test_other_errors_are_of_no_part(error: object) -> None:
    assert part_of(error) is None
