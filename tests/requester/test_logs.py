"""Lines of many threads and libraries end up in one stream, each whole."""

import io
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import structlog
from structlog.typing import Processor

from requester import logs


class Written(io.StringIO):
    """A stream that records each call's text; between two calls another thread may write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return super().write(text)


@contextmanager
def capture_lines(processors: Sequence[Processor] = (), filters: Sequence[logging.Filter] = ()) -> Iterator[Written]:
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    stream = Written()
    root.handlers.clear()  # `configure` closes those it finds
    logs.configure_logging(as_json=True, level="INFO", to=stream, processors=processors, filters=filters)
    yield stream
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def written() -> Iterator[Written]:
    with capture_lines() as lines:
        yield lines


def test_a_log_line_is_one_write_from_any_logger(written: Written) -> None:
    structlog.get_logger("gradmarket.test").info("ours", replica="0123456789abcdef-0-1-2-3-ff")
    logging.getLogger("a.library").info("theirs")
    assert [json.loads(line)["event"] for line in written.writes] == ["ours", "theirs"]
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in written.writes)
