"""Answers computed for strangers: one at a time, for all that ask meanwhile, within one share of the time."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from fastapi import HTTPException
from hypothesis import given
from hypothesis import strategies as st

from requester.features.answer_cache import AT_ONCE_S, SHARE, CachedAnswers, Recent, Share
from tests.kit.clock import Clock
from tests.patience import wait_for

STRANGER = "203.0.113.7"


class Counting:
    """Takes `seconds` of the clock's time and counts how often it was asked."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds, self.times = clock, seconds, 0

    def __call__(self) -> int:
        self.clock.now += self.seconds
        self.times += 1
        return self.times


def test_a_burst_of_strangers_is_one_computation() -> None:
    clock = Clock()
    begun, may_end, work = threading.Event(), threading.Event(), Counting(clock, AT_ONCE_S)

    def slow() -> int:
        begun.set()
        wait_for(may_end)
        return work()

    recent = Recent[int](Share(clock))
    with ThreadPoolExecutor(40) as pool:
        first = pool.submit(recent.get, "job", "", STRANGER, slow)
        wait_for(begun)
        others = [pool.submit(recent.get, "job", "", STRANGER, slow) for _ in range(199)]
        may_end.set()
        assert {asked.result() for asked in (first, *others)} == {1}
    assert work.times == 1


def test_a_stranger_takes_an_older_one_while_another_s_is_computed() -> None:
    clock = Clock()
    begun, may_end = threading.Event(), threading.Event()

    def slow() -> int:
        begun.set()
        wait_for(may_end)
        return 2

    recent = Recent[int](Share(clock))
    assert recent.get("job", "", STRANGER, lambda: 1) == 1
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(recent.get, "job", "", STRANGER, slow)
        wait_for(begun)
        assert recent.get("job", "", STRANGER, lambda: 3) == 1
        assert recent.get("job", "", None, lambda: 4) == 4, "who has no limits waits for nobody"
        may_end.set()
        assert asked.result() == 2


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0.001, 0.5), st.floats(0, 5)), max_size=150))
def test_all_names_together_take_a_twentieth_of_the_time(asked: list[tuple[int, float, float]]) -> None:
    clock, spent, longest = Clock(), 0.0, 0.0
    recent = Recent[int](Share(clock))
    for name, seconds, pause in asked:
        clock.now += pause
        work = Counting(clock, seconds)
        with suppress(HTTPException):
            recent.get(str(name), "", STRANGER, work)
        spent, longest = spent + seconds * work.times, max(longest, seconds)
    assert spent <= AT_ONCE_S + longest + clock.now / SHARE + 1e-6


def test_without_time_a_stranger_gets_what_there_is_or_comes_again() -> None:
    clock = Clock()
    recent, work = Recent[int](Share(clock)), Counting(clock, 2 * AT_ONCE_S)
    assert recent.get("one", "running 1", STRANGER, work) == 1
    assert recent.get("one", "running 2", STRANGER, work) == 1
    with pytest.raises(HTTPException) as refused:
        recent.get("other", "", STRANGER, work)
    assert (refused.value.status_code, int((refused.value.headers or {})["Retry-After"]) > 0) == (503, True)
    assert recent.get("other", "", None, work) == 2
    clock.now += 2 * SHARE * AT_ONCE_S
    assert recent.get("one", "running 2", STRANGER, work) == 3


def test_under_another_mark_it_is_computed_anew() -> None:
    clock = Clock()
    recent, work = Recent[int](Share(clock)), Counting(clock, 0.01)
    assert [recent.get("job", mark, STRANGER, work) for mark in ("a", "a", "b", "b")] == [1, 1, 2, 2]


def test_answers_of_many_names_share_the_time_too() -> None:
    clock = Clock()
    work = Counting(clock, AT_ONCE_S / 4)

    async def all_of_them() -> list[int | BaseException]:
        answers = CachedAnswers[int](Share(clock))
        return await asyncio.gather(
            *(answers.get(str(name), STRANGER, work) for name in range(20)), return_exceptions=True
        )

    found = asyncio.run(all_of_them())
    assert work.times == 5
    assert [each.status_code for each in found if isinstance(each, HTTPException)] == [503] * 15
