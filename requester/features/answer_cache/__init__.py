"""Caches answers whose cost grows with the rows; computing them for strangers takes at most a twentieth of the time."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, TypeVar

from fastapi import Depends, HTTPException, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import State

from gradmarket.market.errors import NotFound
from requester.api.callers import retry_after
from requester.context import Context
from requester.feature import Feature
from requester.store.remembered import Remembered

Value = TypeVar("Value")

SHARE: Final = 20.0
"""Seconds for which strangers get the cached answer, for each second that it took."""
AT_ONCE_S: Final = 1.0
"""Seconds of computing for strangers that may be used at once, after a pause."""
PATIENCE_S: Final = 2.0
"""Seconds that a stranger waits for another's computation where nothing is cached for it."""
MOST: Final = 4096
BUSY: Final = "too much is computed for strangers just now: come again, or send an API token"


@dataclass(frozen=True, slots=True)
class _Made(Generic[Value]):
    """A cached value and when its computation began; it is fresh for strangers until `until`, under the same mark."""

    value: Value
    mark: str
    began: float
    until: float


class Share:
    """The time that all strangers together have for computations: one second in `pause`, and a second at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, pause: float = SHARE) -> None:
        self.clock = clock
        self.pause = pause
        self.turn = threading.Lock()
        """Held during a computation for a stranger in a thread, so that only one runs at a time."""
        self._lock = threading.Lock()
        self._paid_at = clock()
        """The time when the share will have made up for all computations so far."""

    def wait(self) -> float:
        """Returns the seconds until a computation may begin; zero or less if it may now."""
        return self._paid_at - self.clock() - self.pause * AT_ONCE_S

    def charge_seconds(self, seconds: float) -> None:
        with self._lock:
            self._paid_at = max(self._paid_at, self.clock()) + self.pause * seconds


class CachedAnswers(Generic[Value]):
    """The newest answer of each name. One is computed at a time, for all callers that asked before it began."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._turn = asyncio.Lock()
        self._made = _Newest[Value](share)

    async def get(self, name: str, source: str | None, make: Callable[[], Value]) -> Value:
        """Returns the answer, cached or new. `source` is the caller's address, or None for one without limits.

        Raises 503 for a stranger if nothing is cached and the strangers' share of the time is used up.
        """
        requested_at = self._share.clock()
        async with self._turn:
            kept = self._made.newest(name)
            if kept is None or kept.began < requested_at:
                kept = None if source is None else self._made.for_strangers(name, "")
            if kept is not None:
                return kept.value
            return await run_in_threadpool(self._made.make, name, "", source is not None, make)


class Recent(Generic[Value]):
    """The same for a part of an answer; it may be used from any thread.

    For strangers one is computed at a time, and those that ask for it meanwhile get its result.
    """

    def __init__(self, share: Share) -> None:
        self._share = share
        self._made = _Newest[Value](share)

    def get(self, name: str, mark: str, source: str | None, make: Callable[[], Value]) -> Value:
        """Returns the value, cached or new; one made under another mark is returned only where no time is left.

        Raises 503 for a stranger if nothing is cached and the strangers' share of the time is used up.
        """
        if source is None:
            return self._made.make(name, mark, False, make)
        kept = self._made.for_strangers(name, mark)
        return kept.value if kept is not None else self._in_turn(name, mark, make)

    def _in_turn(self, name: str, mark: str, make: Callable[[], Value]) -> Value:
        before = self._made.newest(name)
        patience = 0.0 if before is not None and before.mark == mark else PATIENCE_S
        if not self._share.turn.acquire(timeout=patience):
            if before is None:
                raise HTTPException(503, BUSY, retry_after(PATIENCE_S))
            return before.value
        try:
            kept = self._made.newest(name)
            if kept is None or kept is before or kept.mark != mark:
                kept = self._made.for_strangers(name, mark)
            return kept.value if kept is not None else self._made.make(name, mark, True, make)
        finally:
            self._share.turn.release()


class _Newest(Generic[Value]):
    """The newest value of each name; beyond 4,096 names the least recently used is dropped."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._made = Remembered[_Made[Value]](MOST)

    def newest(self, name: str) -> _Made[Value] | None:
        return self._made.peek(name)

    def for_strangers(self, name: str, mark: str) -> _Made[Value] | None:
        """Returns a stranger's value without a computation; None if one may begin. Raises 503 if nothing is cached."""
        kept, wait = self._made.peek(name), self._share.wait()
        if kept is not None and kept.mark == mark and self._share.clock() < kept.until:
            return kept
        if wait <= 0.0:
            return None
        if kept is None:
            raise HTTPException(503, BUSY, retry_after(wait))
        return kept

    def make(self, name: str, mark: str, stranger: bool, make: Callable[[], Value]) -> Value:
        began, counted = self._share.clock(), stranger
        try:
            value = make()
        except NotFound:
            counted = False  # it took the look-up of one row
            raise
        finally:
            ended = self._share.clock()
            if counted:
                self._share.charge_seconds(ended - began)
        self._made.remember(name, _Made(value, mark, began, ended + self._share.pause * (ended - began)))
        return value


async def _get_source(request: Request) -> str | None:
    source: str | None = request.state.source
    return source


Source = Annotated[str | None, Depends(_get_source)]


class AnswerCacheFeature(Feature):
    """The first of all, since other features' caches share its time."""

    name = "answer_cache"

    def open_caches(self, state: State, context: Context) -> None:
        state.strangers_share = Share()
        state.standings = Recent[Any](state.strangers_share)

    def cache_standing(self, request: Request, job_id: str, mark: str, make: Callable[[], Value]) -> Value:
        standings: Recent[Value] = request.app.state.standings
        return standings.get(job_id, mark, request.state.source, make)
