"""Long polls that wait for minutes; their workers count as alive and asking for work exactly while they wait."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import structlog
from fastapi import Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from gradmarket.market.terms import Address
from requester.context import Context
from requester.feature import Dispatcher, dispatcher_of
from requester.notifier import ended_topic, rung_within, worker_topic
from requester.store import workers
from requester.store.locks import retry_on_conflict

KEEP_S: Final = 15.0
"""A third of the time after which a silent worker counts as gone."""
log = structlog.get_logger("gradmarket.work")


class LongPolls:
    """The waiting polls of one process; `keep` runs while it serves."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._polls = Counter[Address]()
        self._vouched: set[Address] = set()
        """Marked as present and asking for longer than their polls may last."""
        self._gone: Dispatcher[Address, None] = dispatcher_of(context)(self._mark_gone)

    @asynccontextmanager
    async def waiting(self, worker: Address, request: Request) -> AsyncIterator["Wait"]:
        """Waits in a request whose body was read. A worker whose client leaves meanwhile stops asking, unless it came
        again.

        A worker that was vouched for stops asking too once its poll is over: else it could get places unknown to it.
        """
        notifier = self._context.notifier
        with (
            notifier.listen_async([worker_topic(worker)]) as notified,
            notifier.listen_async([ended_topic(worker)], notified) as ended,
        ):
            wait = Wait(request, notified, ended)
            self._polls[worker] += 1
            try:
                yield wait
            finally:
                wait.close()
                self._polls[worker] -= 1
                if not self._polls[worker]:
                    del self._polls[worker]
        over = worker in self._vouched and not self._polls[worker]
        self._vouched -= {worker} if over else set()
        if (wait.gone or over) and not notifier.closing:
            await self._gone.ask(worker)

    async def renew_presence(self) -> None:
        """Marks all waiting workers as present every KEEP_S seconds, in one statement."""
        while not self._context.notifier.closing:
            await asyncio.sleep(KEEP_S)
            try:
                await run_in_threadpool(self._mark_present)
            except SQLAlchemyError:
                log.exception("cannot say who waits")

    @retry_on_conflict
    def _mark_present(self) -> None:
        here = list(self._polls)
        if here:
            self._vouched.update(here)
            with self._context.begin() as work:
                workers.mark_present(work, here, self._context.clock())
            left = [worker for worker in here if worker not in self._polls]
            if left:  # their polls ended meanwhile, and marked them as gone before this marked them as present
                self._mark_gone(left)

    @retry_on_conflict
    def _mark_gone(self, gone: Sequence[Address]) -> Sequence[None]:
        with self._context.begin() as work:
            workers.mark_gone(work, [worker for worker in gone if worker not in self._polls])
        return [None] * len(gone)


class Wait:
    """The waiting of one poll."""

    def __init__(self, request: Request, notified: asyncio.Event, ended: asyncio.Event) -> None:
        self._request, self._notified, self._ended = request, notified, ended
        self._leaving: asyncio.Task[None] | None = None

    @property
    def gone(self) -> bool:
        """Whether the client has disconnected."""
        return self._leaving is not None and self._leaving.done() and not self._leaving.cancelled()

    @property
    def ended(self) -> bool:
        """Returns whether a job has ended in which the worker has an account, so that it should see to its vouchers."""
        return self._ended.is_set()

    async def wait_for_news(self, seconds: float) -> bool:
        """Waits at most `seconds` for a notification; returns whether one came."""
        if self._leaving is None:  # most polls are answered at once
            self._leaving = asyncio.create_task(self._watch_connection())
        notified = await rung_within(self._notified, seconds)
        self._notified.clear()
        return notified

    async def _watch_connection(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self._notified.set()

    def close(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
