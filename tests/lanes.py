"""The tests that `make test` leaves to `make test-all`: those with the mark `full`, named in tests/full_lane.txt.

A line there is a file, a test, or the number of a test's cases. The PostgreSQL case of a test without the mark
`databases` is left to `make test-all` too, and not listed. `python -m tests.lanes` writes the list from the marks.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.mark import ParameterSet

LIST: Final = Path(__file__).with_name("full_lane.txt")
FULL: Final = pytest.mark.full
COLLECTED: Final = pytest.StashKey[dict[str, bool]]()
"""Whether each collected test has the mark, by its node id."""


def leave_to_full(cases: Iterable[Any], but: int = 1) -> list[ParameterSet]:
    """Returns the cases of a test; all but `but` of them, spread over them, run in `make test-all` alone.

    A case that is a tuple has the values of several arguments: the one value of one argument, where it is a tuple
    itself, is given in another.
    """
    listed = [case if isinstance(case, tuple) else (case,) for case in cases]
    kept = {place * len(listed) // but for place in range(but)}
    return [pytest.param(*case, marks=[] if place in kept else FULL) for place, case in enumerate(listed)]


def record_lanes(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    config.stash[COLLECTED] = {
        item.nodeid: item.get_closest_marker(FULL.name) is not None for item in items if not on_postgres_by_rule(item)
    }


def on_postgres_by_rule(item: pytest.Item) -> bool:
    """Returns whether the test runs on PostgreSQL because `make test-all` runs every test there."""
    case = getattr(item, "callspec", None)
    on_postgres = case is not None and case.params.get("new_database") == "postgresql"
    return on_postgres and item.get_closest_marker("databases") is None


def leave_later_cases(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Returns the items without the later cases of a test on PostgreSQL by rule, and those: the first one tests the
    database, and SQLite runs all of them.
    """
    seen, kept, left = set[str](), list[pytest.Item](), list[pytest.Item]()
    for item in items:
        later = on_postgres_by_rule(item) and case_less(item.nodeid) in seen
        (left if later else kept).append(item)
        if on_postgres_by_rule(item):
            seen.add(case_less(item.nodeid))
    return kept, left


def summarize_lane(collected: Mapping[str, bool]) -> list[str]:
    """Names each marked test once: by its file where all of that is marked, and how many cases where not all are."""
    files: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for node in collected:
        files[file_of(node)][case_less(node)].append(node)
    lines: list[str] = []
    for file, tests in files.items():
        if all(collected[node] for cases in tests.values() for node in cases):
            lines.append(file)
            continue
        for test, cases in tests.items():
            marked = [node for node in cases if collected[node]]
            if marked:
                lines.append(test if marked == cases else f"{test}: {len(marked)} of {len(cases)} cases")
    return sorted(lines)


def file_of(node: str) -> str:
    return node.partition("::")[0]


def case_less(node: str) -> str:
    return node.partition("[")[0]


@cache
def read_list() -> list[str]:
    return LIST.read_text().splitlines()


class ListWriter:
    """A plug-in that writes the list when all tests are collected."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        lines = summarize_lane(session.config.stash[COLLECTED])
        LIST.write_text("".join(f"{line}\n" for line in lines))


def main() -> int:
    collecting = ["--collect-only", "-qq", "--disable-warnings", "--no-summary"]
    return pytest.main(collecting, [import_module("tests.lanes").ListWriter()])  # this module is another, __main__


if __name__ == "__main__":
    sys.exit(main())
