"""Spans are written where a file is named for them, each with its parent; else none is."""

import json
import subprocess
import sys
from pathlib import Path

from tests.lanes import FULL

PROGRAM = """
import sys
from pathlib import Path
from requester.features.tracing import start_tracing
from requester.meters import record_span
with start_tracing(Path(sys.argv[1]) if len(sys.argv) > 1 else None):
    with record_span("stage aggregate") as outer:
        with record_span("merge"):
            print(outer.is_recording())
"""


def traced(*arguments: str) -> str:
    """Returns the output of a process of its own: a provider is set once in a process."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], check=True, capture_output=True, text=True
    ).stdout


def test_spans_are_lines_with_what_they_are_a_part_of(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    for _ in range(2):
        assert traced(str(file)) == "True\n"
    spans = [json.loads(line) for line in file.read_text().splitlines()]
    assert [one["name"] for one in spans] == ["merge", "stage aggregate"] * 2
    assert spans[0]["parent_id"] == spans[1]["context"]["span_id"]
    assert spans[1]["parent_id"] is None
    assert all(one["start_time"] <= one["end_time"] for one in spans)


@FULL
def test_without_a_file_nothing_is_recorded(tmp_path: Path) -> None:
    assert traced() == "False\n"
    assert list(tmp_path.iterdir()) == []
