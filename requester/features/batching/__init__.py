"""Batches concurrent requests, so that one database transaction handles several of them."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from starlette.concurrency import run_in_threadpool

from requester.feature import Dispatcher, Feature

Question = TypeVar("Question")
Result = TypeVar("Result")

LANES: Final = 2
"""Concurrent transactions, so that one that waits for a lock does not block all requests."""
MOST: Final = 64
"""Requests in one transaction, at most."""
GATHER_S: Final = 0.003
LONGEST_GATHER_S: Final = 0.02
"""A transaction waits for further requests until none came for GATHER_S, at most LONGEST_GATHER_S: several cost hardly
more than one, and requests of leases that were drawn together come together.
"""
NEWEST: Final = 8
"""Newest transactions whose largest size ends the wait: with few workers, all are in it. One transaction in NEWEST
waits all the same, or the size could never grow.
"""


class Batcher(Dispatcher[Question, Result]):
    """Gathers the requests that come together and those that come while its lanes are busy, and passes them to `act`.

    `act` returns one result for each request, in the same order.
    """

    def __init__(
        self, act: Callable[[Sequence[Question]], Sequence[Result]], lanes: int = LANES, most: int = MOST
    ) -> None:
        self._act = act
        self._free = lanes
        self._most = most
        self._gathering = False
        self._begun = 0
        self._sizes = deque[int](maxlen=NEWEST)
        """Sizes of the newest transactions."""
        self._enough, self._all_here = most, asyncio.Event()
        """The number of requests waited for, and whether as many wait."""
        self._waiting: list[tuple[Question, asyncio.Future[Result]]] = []
        self._lanes = set[asyncio.Task[None]]()

    async def ask(self, asked: Question) -> Result:
        """Returns the result of `act` for this request, or raises the error that `act` raised for it."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, answer))
        if len(self._waiting) >= self._enough:
            self._all_here.set()
        self._start_lane()
        return await answer

    def _start_lane(self) -> None:
        """Starts a lane if requests wait, a lane is free and none is gathering already."""
        if self._waiting and self._free and not self._gathering:
            self._free -= 1
            self._gathering = True
            lane = asyncio.create_task(self._run_lane())
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)

    async def _run_lane(self) -> None:
        await self._gather_batch()
        batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        self._gathering = False
        self._start_lane()
        await self._answer_batch(batch)
        self._free += 1
        self._start_lane()

    async def _gather_batch(self) -> None:
        loop = asyncio.get_running_loop()
        before, until = 0, loop.time() + LONGEST_GATHER_S
        self._enough = self._compute_batch_size()
        self._all_here.clear()
        while before < len(self._waiting) < self._enough and loop.time() < until:
            before = len(self._waiting)
            ring = loop.call_later(GATHER_S, self._all_here.set)
            await self._all_here.wait()
            ring.cancel()
            self._all_here.clear()
        self._begun += 1
        self._sizes.append(len(self._waiting))

    def _compute_batch_size(self) -> int:
        learning = len(self._sizes) < NEWEST or self._begun % NEWEST == 0
        return self._most if learning else min(self._most, max(self._sizes))

    async def _answer_batch(self, asked: Sequence[tuple[Question, asyncio.Future[Result]]]) -> None:
        """Calls `act` for the requests. If it fails for several, calls it for each alone, so that only one fails."""
        try:
            results = await run_in_threadpool(self._act, [one for one, _answer in asked])
        except Exception as error:  # noqa: BLE001 - it is raised again in the caller
            if len(asked) > 1:
                for one in asked:
                    await self._answer_batch([one])
            elif not asked[0][1].done():
                asked[0][1].set_exception(error)
            return
        for (_one, answer), result in zip(asked, results, strict=True):
            if not answer.done():  # the caller may have been cancelled
                answer.set_result(result)


class BatchingFeature(Feature):
    name = "batching"
    dispatcher = Batcher
