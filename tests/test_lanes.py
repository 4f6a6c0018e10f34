"""`make test` and `make test-all` together run every test once: what the one leaves out is named, and has its mark."""

import pytest

from tests.lanes import COLLECTED, case_less, file_of, read_list, summarize_lane


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
