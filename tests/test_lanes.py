"""`make test` and `make test-all` together run every test once: what the one leaves out is named, and has its mark."""

from types import SimpleNamespace

import pytest

from tests.lanes import COLLECTED, case_less, file_of, leave_later_cases, read_list, summarize_lane


def test_the_list_names_what_make_test_leaves_to_make_test_all(request: pytest.FixtureRequest) -> None:
    """Of all that was collected beside it, and where that is everything, nothing else: `python -m tests.lanes`."""
    collected, named = request.config.stash[COLLECTED], set(read_list())
    for node, full in collected.items():
        assert full == bool({node, case_less(node), file_of(node)} & named), node
    if request.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        assert summarize_lane(collected) == read_list()


def test_a_lane_is_named_by_files_tests_and_cases() -> None:
    marks = {"a.py::x": True, "a.py::y[1]": True, "b.py::x[1]": True, "b.py::x[2]": True, "b.py::y[1]": True}
    others = {"b.py::y[2]": False, "c.py::x": False}
    assert summarize_lane(marks | others) == ["a.py", "b.py::x", "b.py::y[1]"]


def test_later_cases_of_a_test_are_left_on_postgresql_alone(request: pytest.FixtureRequest) -> None:
    names = ("x[sqlite-1]", "x[postgresql-1]", "x[sqlite-2]", "x[postgresql-2]", "y[postgresql-1]")
    kept, left = leave_later_cases([database_case(request.session, name) for name in names])
    assert [item.name for item in left] == ["x[postgresql-2]"]
    assert [item.name for item in kept] == [name for name in names if name != "x[postgresql-2]"]


def database_case(session: pytest.Session, name: str) -> pytest.Item:
    item = pytest.Function.from_parent(session, name=name, callobj=test_a_lane_is_named_by_files_tests_and_cases)
    item.callspec = SimpleNamespace(params={"new_database": name.partition("[")[2].partition("-")[0]})
    return item
