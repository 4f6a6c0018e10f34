"""Spans are written where a file is named for them, each with its parent; else none is."""

import json
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Final

from requester.features.tracing import start_tracing
from requester.meters import record_span

FORKED: Final = get_context("fork")


def trace_stage(file: Path | None, recorded: "SimpleQueue[bool]") -> None:
    with start_tracing(file), record_span("stage aggregate") as outer, record_span("merge"):
        recorded.put(outer.is_recording())


def is_traced(file: Path | None) -> bool:
    """Returns whether a process of its own records: a provider is set once in a process."""
    recorded: SimpleQueue[bool] = FORKED.SimpleQueue()
    child = FORKED.Process(target=trace_stage, args=(file, recorded))
    child.start()
    child.join()
    assert child.exitcode == 0
    return recorded.get()


def test_spans_are_lines_with_what_they_are_a_part_of(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    for _ in range(2):
        assert is_traced(file)
    spans = [json.loads(line) for line in file.read_text().splitlines()]
    assert [one["name"] for one in spans] == ["merge", "stage aggregate"] * 2
    assert spans[0]["parent_id"] == spans[1]["context"]["span_id"]
    assert spans[1]["parent_id"] is None
    assert all(one["start_time"] <= one["end_time"] for one in spans)


def test_without_a_file_nothing_is_recorded(tmp_path: Path) -> None:
    assert not is_traced(None)
    assert list(tmp_path.iterdir()) == []
