"""Simultaneous requests go to the database together, and none gets another's error."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from requester.features.batching import NEWEST, Batcher
from tests.patience import PATIENCE_S, wait_beside, wait_for


class Doubler:
    """Doubles numbers, several at once; it waits at the first until it may go on, and refuses odd ones."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.may_go_on = threading.Event()

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.calls.append(list(numbers))
        wait_for(self.may_go_on)
        if any(number % 2 for number in numbers):
            raise ValueError(f"{list(numbers)} are not even")
        return [2 * number for number in numbers]


def run_batches(doubler: Doubler, numbers: Sequence[int], most: int = 64) -> list[int | BaseException]:
    """Asks for the first, and for the others while it is busy with that."""

    async def all_of_them() -> list[int | BaseException]:
        together = Batcher(doubler, lanes=1, most=most)
        first = asyncio.create_task(together.ask(numbers[0]))
        await wait_beside(lambda: doubler.calls)
        others = [asyncio.create_task(together.ask(number)) for number in numbers[1:]]
        await asyncio.sleep(0)
        doubler.may_go_on.set()
        return await asyncio.gather(first, *others, return_exceptions=True)

    return asyncio.run(all_of_them())


def test_requests_during_a_call_are_batched_into_the_next() -> None:
    doubler = Doubler()
    assert run_batches(doubler, [2, 4, 6, 8]) == [4, 8, 12, 16]
    assert doubler.calls == [[2], [4, 6, 8]]


def test_no_more_than_so_many_at_once() -> None:
    doubler = Doubler()
    assert run_batches(doubler, [2, 4, 6, 8], most=2) == [4, 8, 12, 16]
    assert doubler.calls == [[2], [4, 6], [8]]


def test_nobody_answers_for_anothers_fault() -> None:
    doubler = Doubler()
    found = run_batches(doubler, [2, 4, 5, 8])
    assert [found[0], found[1], found[3]] == [4, 8, 16]
    with pytest.raises(ValueError, match=r"\[5\] are not even"):
        raise found[2]  # type: ignore[misc]


def test_cancelled_requests_do_not_hold_up_others() -> None:
    doubler = Doubler()

    async def one_goes() -> int:
        together = Batcher(doubler, lanes=1)
        first = asyncio.create_task(together.ask(2))
        await wait_beside(lambda: doubler.calls)
        second, third = asyncio.create_task(together.ask(4)), asyncio.create_task(together.ask(6))
        await asyncio.sleep(0)
        second.cancel()
        first.cancel()
        doubler.may_go_on.set()
        return await third

    assert asyncio.run(one_goes()) == 12


def test_requests_a_moment_apart_join_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("requester.features.batching.LONGEST_GATHER_S", 60.0)
    doubler = Doubler()
    doubler.may_go_on.set()

    async def one_after_another() -> list[int]:
        together = Batcher(doubler)
        asks = []
        for number in (2, 4, 6):
            asks.append(asyncio.create_task(together.ask(number)))
            await asyncio.sleep(0)
        return await asyncio.gather(*asks)

    assert asyncio.run(one_after_another()) == [4, 8, 12]
    assert doubler.calls == [[2, 4, 6]], "and the second lane had nothing to do"


def test_another_lane_takes_what_comes_while_one_waits() -> None:
    doubler = Doubler()

    async def two_lanes() -> list[int]:
        together = Batcher(doubler, lanes=2)
        first = asyncio.create_task(together.ask(2))
        await wait_beside(lambda: doubler.calls)
        others = [asyncio.create_task(together.ask(number)) for number in (4, 6)]
        await wait_beside(lambda: len(doubler.calls) == 2)
        doubler.may_go_on.set()
        return await asyncio.gather(first, *others)

    assert asyncio.run(two_lanes()) == [4, 8, 12]
    assert doubler.calls == [[2], [4, 6]]


def test_another_lane_takes_what_is_beyond_the_most_of_one() -> None:
    doubler = Doubler()

    async def three_at_once() -> list[int]:
        together = Batcher(doubler, lanes=2, most=2)
        asks = [asyncio.create_task(together.ask(number)) for number in (2, 4, 6)]
        await wait_beside(lambda: len(doubler.calls) == 2)
        doubler.may_go_on.set()
        return await asyncio.gather(*asks)

    assert asyncio.run(three_at_once()) == [4, 8, 12]
    assert sorted(doubler.calls) == [[2, 4], [6]], "of two threads either may be the first"


def test_a_batcher_gathers_for_no_longer_than_usual_and_probes_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("requester.features.batching.GATHER_S", 0.0)
    doubler = Doubler()
    doubler.may_go_on.set()

    async def pairs() -> None:
        together = Batcher(doubler, lanes=1)
        for _ in range(NEWEST + 1):
            await asyncio.gather(together.ask(2), together.ask(4))
        monkeypatch.setattr("requester.features.batching.GATHER_S", 3600.0)
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(NEWEST - 1):
                await asyncio.gather(together.ask(2), together.ask(4))
        monkeypatch.setattr("requester.features.batching.GATHER_S", 1.0)
        first = asyncio.gather(together.ask(2), together.ask(4))
        await asyncio.sleep(0)
        await asyncio.gather(first, together.ask(6))

    asyncio.run(pairs())
    assert doubler.calls == [[2, 4]] * (2 * NEWEST) + [[2, 4, 6]], "the last one learnt that a third comes now"


@pytest.mark.parametrize("longest", [60.0, 0.0])
def test_a_transaction_waits_while_more_come_and_not_for_ever(monkeypatch: pytest.MonkeyPatch, longest: float) -> None:
    monkeypatch.setattr("requester.features.batching.GATHER_S", 0.0)
    monkeypatch.setattr("requester.features.batching.LONGEST_GATHER_S", longest)
    doubler = Doubler()
    doubler.may_go_on.set()

    async def one_after_another() -> list[int]:
        together = Batcher(doubler, lanes=1)
        asking = []
        for number in (2, 4, 6, 8):
            asking.append(asyncio.create_task(together.ask(number)))
            await asyncio.sleep(0)
        return await asyncio.gather(*asking)

    assert asyncio.run(one_after_another()) == [4, 8, 12, 16]
    assert [number for call in doubler.calls for number in call] == [2, 4, 6, 8]
    assert (len(doubler.calls) == 1) == (longest > 0)
