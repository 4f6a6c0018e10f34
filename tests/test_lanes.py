"""`make test` and `make test-all` together run every test once: the tests left to the second are named and marked."""

from types import SimpleNamespace

import pytest

from tests.lanes import COLLECTED, file_of, leave_later_cases, read_list, summarize_lane


def test_the_list_names_what_make_test_leaves_to_make_test_all(request: pytest.FixtureRequest) -> None:
    """Of the files that were collected beside it: `python -m tests.lanes` writes it."""
    collected = request.config.stash[COLLECTED]
    if any("::" in asked for asked in request.config.args):
        return  # not all tests of a file were collected
    files = {file_of(node) for node in collected}
    assert summarize_lane(collected) == [line for line in read_list() if file_of(line) in files]


def test_a_lane_is_named_by_files_tests_and_cases() -> None:
    marks = {"a.py::x": True, "a.py::y[1]": True, "b.py::x[1]": True, "b.py::x[2]": True, "b.py::y[1]": True}
    others = {"b.py::y[2]": False, "c.py::x": False}
    assert summarize_lane(marks | others) == ["a.py", "b.py::x", "b.py::y: 1 of 2 cases"]


def test_later_cases_of_a_test_are_left_on_postgresql_alone(request: pytest.FixtureRequest) -> None:
    names = ("x[sqlite-1]", "x[postgresql-1]", "x[sqlite-2]", "x[postgresql-2]", "y[postgresql-1]")
    kept, left = leave_later_cases([database_case(request.session, name) for name in names])
    assert [item.name for item in left] == ["x[postgresql-2]"]
    assert [item.name for item in kept] == [name for name in names if name != "x[postgresql-2]"]


def database_case(session: pytest.Session, name: str) -> pytest.Item:
    item = pytest.Function.from_parent(session, name=name, callobj=test_a_lane_is_named_by_files_tests_and_cases)
    item.callspec = SimpleNamespace(params={"new_database": name.partition("[")[2].partition("-")[0]})
    return item
