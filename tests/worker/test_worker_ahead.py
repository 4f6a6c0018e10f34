"""Loading ahead of time: once, by another thread, and without an error before the thing is taken."""

import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.compute.prefetch import Prefetch
from gradmarket.network import DownloadFailed
from tests.patience import wait_for, wait_until


class Loads:
    """Things that know how often, and by which thread, they were loaded."""

    def __init__(self) -> None:
        self.by: dict[str, list[str]] = {}
        self.broken: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, name: str) -> Callable[[], str]:
        def load() -> str:
            self.by.setdefault(name, []).append(threading.current_thread().name)
            wait_for(self.gate)
            if name in self.broken:
                self.broken.discard(name)
                raise DownloadFailed(name)
            return name.upper()

        return load


def test_an_expected_thing_is_loaded_once_ahead() -> None:
    ahead, loads = Prefetch[str](2), Loads()
    ahead.expect("a", loads("a"))
    ahead.expect("a", loads("a"))
    wait_until(lambda: "a" in loads.by)
    assert [ahead.take("a", loads("a")) for _ in range(2)] == ["A", "A"]
    assert loads.by == {"a": ["ahead"]}


def test_an_unexpected_thing_is_loaded_in_the_caller_s_thread() -> None:
    ahead, loads = Prefetch[str](2), Loads()
    assert ahead.take("a", loads("a")) == "A"
    assert ahead.take("a", loads("a")) == "A"
    assert loads.by == {"a": ["MainThread"]}


def test_taking_a_thing_that_is_being_loaded_waits_for_it() -> None:
    ahead, loads = Prefetch[str](2), Loads()
    loads.gate.clear()
    ahead.expect("a", loads("a"))
    wait_until(lambda: "a" in loads.by)
    threading.Timer(0.05, loads.gate.set).start()
    assert ahead.take("a", loads("a")) == "A"
    assert loads.by == {"a": ["ahead"]}


def test_a_queue_before_it_is_not_waited_for() -> None:
    ahead, loads = Prefetch[str](4), Loads()
    loads.gate.clear()
    slow = Loads()
    ahead.expect("slow", loads("slow"))
    wait_until(lambda: "slow" in loads.by)
    ahead.expect("a", slow("a"))
    assert ahead.take("a", slow("a")) == "A"
    assert slow.by == {"a": ["MainThread"]}
    loads.gate.set()


def test_a_load_that_failed_ahead_is_tried_again_when_taken() -> None:
    ahead, loads = Prefetch[str](2), Loads()
    loads.broken.add("a")
    ahead.expect("a", loads("a"))
    wait_until(lambda: not loads.broken)
    assert ahead.take("a", loads("a")) == "A"
    loads.broken.add("b")
    with pytest.raises(DownloadFailed):
        ahead.take("b", loads("b"))
    assert ahead.take("b", loads("b")) == "B"


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcdef")), max_size=30), st.integers(1, 4))
def test_a_taken_thing_is_right_in_any_order_of_expectations(moves: list[tuple[bool, str]], kept: int) -> None:
    ahead, loads = Prefetch[str](kept), Loads()
    for taking, name in moves:
        if taking:
            assert ahead.take(name, loads(name)) == name.upper()
        else:
            ahead.expect(name, loads(name))
        assert len(ahead._things) <= kept
