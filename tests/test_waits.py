"""No test waits for a time: events and their longest wait are in tests/patience.py alone."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SEEN_AS = (
    r"\bsleep\((?!0\))",
    r"\btimeout=\d",
    r"\.(?:wait|join)\(\d",
    r"mark\.timeout\(\d",
    r"(?:\bwhile\b|\b(?:until|end|deadline) = ).*\bmonotonic\(\)",
)
WAITS = re.compile("|".join(SEEN_AS))


def waits(text: str) -> list[str]:
    """The lines that wait for a time, or until one of their own."""
    return [line.strip() for line in text.splitlines() if WAITS.search(line)]


def test_no_test_waits_for_a_time() -> None:
    files = [path for path in HERE.rglob("*.py") if path.name not in ("patience.py", Path(__file__).name)]
    assert {str(path.relative_to(HERE)): found for path in files if (found := waits(path.read_text()))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "time.sleep(0.1)",
        "await asyncio.sleep(1)",
        "thread.join(60)",
        "assert event.wait(5)",
        "process.communicate(timeout=30)",
        "@pytest.mark.timeout(900)",
        "end = time.monotonic() + 60",
        "while not seen() and time.monotonic() < 5:",
    ],
)
def test_a_wait_for_a_time_is_seen(line: str) -> None:
    assert waits(line) == [line]


def test_yielding_to_others_is_no_wait_for_a_time() -> None:
    assert waits("await asyncio.sleep(0)\nthread.join()\nevent.wait(PATIENCE_S)") == []
