"""What several ask at the same time goes to the database together: one transaction for all of them."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final, Generic, TypeVar

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from gradmarket.market.errors import MarketError
from gradmarket.market.wire import PollAnswer, UploadAnswer
from gradmarket.requester.context import Context
from gradmarket.requester.exchange import outbox, payload_upload, poll, upload_grant

Question = TypeVar("Question")
Result = TypeVar("Result")

LANES: Final = 2
"""Transactions at a time: one that waits for a lock does not hold up everybody."""
MOST: Final = 64
"""Asked for in one transaction."""
GATHER_S: Final = 0.003
"""What a transaction waits for company: for several it costs hardly more than for one."""


class Batcher(Generic[Question, Result]):
    """Gathers what comes within GATHER_S and while its lanes are busy, and hands it to `act`.

    That answers one for one in the same order.
    """

    def __init__(
        self, act: Callable[[Sequence[Question]], Sequence[Result]], lanes: int = LANES, most: int = MOST
    ) -> None:
        self._act = act
        self._free = lanes
        self._most = most
        self._gathering = False
        self._waiting: list[tuple[Question, asyncio.Future[Result]]] = []
        self._lanes = set[asyncio.Task[None]]()

    async def ask(self, asked: Question) -> Result:
        """Raises what `act` raised for it."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, answer))
        self._begin()
        return await answer

    def _begin(self) -> None:
        """Where a lane is free for what waits, and none gathers it already."""
        if self._waiting and self._free and not self._gathering:
            self._free -= 1
            self._gathering = True
            lane = asyncio.create_task(self._drive())
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)

    async def _drive(self) -> None:
        await asyncio.sleep(GATHER_S)
        asked, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        self._gathering = False
        self._begin()
        await self._answer(asked)
        self._free += 1
        self._begin()

    async def _answer(self, asked: Sequence[tuple[Question, asyncio.Future[Result]]]) -> None:
        """Where that fails for several, each by itself: nobody answers for another's fault."""
        try:
            told = await run_in_threadpool(self._act, [one for one, _answer in asked])
        except Exception as error:  # noqa: BLE001 - it is raised again, for who asked
            if len(asked) > 1:
                for one in asked:
                    await self._answer([one])
            elif not asked[0][1].done():
                asked[0][1].set_exception(error)
            return
        for (_one, answer), found in zip(asked, told, strict=True):
            if not answer.done():  # who asked may have gone
                answer.set_result(found)


@dataclass(frozen=True)
class WorkerBatchers:
    """All who poll and deliver here."""

    hear: Batcher[outbox.Poll, PollAnswer]
    answer: Batcher[outbox.Poll, PollAnswer]
    want: Batcher[upload_grant.UploadClaim, upload_grant.UploadGrant | MarketError]
    book: Batcher[payload_upload.Delivery, UploadAnswer | MarketError]


def crowd_of(context: Context) -> WorkerBatchers:
    return WorkerBatchers(
        Batcher(partial(poll.hear, context)),
        Batcher(partial(outbox.answers, context)),
        Batcher(partial(upload_grant.find, context)),
        Batcher(partial(payload_upload.book, context)),
    )


def crowd(request: Request) -> WorkerBatchers:
    found: WorkerBatchers = request.app.state.crowd
    return found


AllHere = Annotated[WorkerBatchers, Depends(crowd)]
