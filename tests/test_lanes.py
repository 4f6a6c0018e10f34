"""`make test` and `make test-all` together run every test once: what the one leaves out is named, and has its mark."""

from types import SimpleNamespace

import pytest

from tests.lanes import COLLECTED, check_list, file_of, leave_later_cases, read_list, summarize_lane
from tests.source_tree import ROOT


def test_the_list_names_files_that_there_are() -> None:
    assert [line for line in read_list() if not (ROOT / file_of(line).partition(":")[0]).is_file()] == []


def test_a_mark_that_the_list_lacks_is_an_error() -> None:
    """Each process checks it of every file that it collects."""
    (listed, *_) = (line for line in read_list() if "::" not in line)
    told: list[pytest.CollectReport] = []
    hook = SimpleNamespace(pytest_collectreport=lambda report: told.append(report))
    config = SimpleNamespace(stash={COLLECTED: {f"{listed}::x": True}}, hook=hook)
    check_list(config)
    assert told == []
    for changed in ({f"{listed}::x": False}, {"tests/test_lanes.py::x": True}):
        config.stash = {COLLECTED: changed}
        check_list(config)
    assert [report.outcome for report in told] == ["failed", "failed"]


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
