"""Reads the newest records of a job's file, and later only its additions."""

import json
from bisect import bisect_left
from collections import deque
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from worker.protocol.records import ReplicaRecord


class RecordTail:
    """Keeps the records of one file whose verdicts came after a moment that only moves forward."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset: int | None = None
        self._kept: deque[ReplicaRecord] = deque()

    def since(self, moment: float) -> list[ReplicaRecord]:
        """Returns the records from `moment` (Unix seconds) on, oldest first; lines that a crash cut are left out."""
        if self._path.is_file():
            with self._path.open("rb") as file:
                self._load_added_records(file, moment)
        while self._kept and self._kept[0].at < moment:
            self._kept.popleft()
        return list(self._kept)

    def _load_added_records(self, file: BinaryIO, moment: float) -> None:
        if self._offset is None:
            size = file.seek(0, 2)
            self._offset = _line_at(file, bisect_left(range(size), moment, key=lambda at: _load_record_time(file, at)))
        file.seek(self._offset)
        added = file.read()
        complete = added[: added.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in complete.splitlines():
            try:
                self._kept.append(ReplicaRecord.model_validate_json(line))
            except ValidationError:
                continue


def load_newest_record(path: Path) -> ReplicaRecord | None:
    """Returns the newest record of a file; None where it has none, or a crash cut it."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        file.seek(_line_at(file, max(0, file.seek(0, 2) - 1)))
        try:
            return ReplicaRecord.model_validate_json(file.readline())
        except ValidationError:
            return None


def _line_at(file: BinaryIO, offset: int) -> int:
    """Returns the begin of the line with the byte at `offset`; the file's end is the begin of its next line."""
    at = offset
    while at > 0:
        start = max(0, at - 65536)
        file.seek(start)
        found = file.read(at - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        at = start
    return 0


def _load_record_time(file: BinaryIO, offset: int) -> float:
    """Returns when the record of the line with the byte at `offset` was written; 0 for a line that is cut."""
    file.seek(_line_at(file, offset))
    try:
        return float(json.loads(file.readline())["at"])
    except (ValueError, KeyError, TypeError):
        return 0.0
