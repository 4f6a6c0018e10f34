"""Caches answers whose cost grows with the rows; computing them for strangers takes at most a twentieth of the time."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, Generic, TypeVar

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

Value = TypeVar("Value")

SHARE: Final = 20.0
"""For each second that an answer took, strangers get the cached one for so many seconds."""
MOST: Final = 256


@dataclass(frozen=True, slots=True)
class _Made(Generic[Value]):
    """A cached value; times are the event loop's."""

    value: Value
    began: float
    until: float


class CachedAnswers(Generic[Value]):
    """The newest answer of each name. One is computed at a time, for all who asked before it was begun."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._made: dict[str, _Made[Value]] = {}

    async def get(self, name: str, source: str | None, make: Callable[[], Value]) -> Value:
        """Returns the answer, cached or new. `source` is the caller's address, or None for one without limits."""
        now = asyncio.get_running_loop().time
        requested_at = now()
        async with self._turn:
            kept = self._made.get(name)
            if kept is not None and (kept.began >= requested_at or (source is not None and now() < kept.until)):
                return kept.value
            began = now()
            value = await run_in_threadpool(make)
            if len(self._made) >= MOST:
                self._made.clear()
            self._made[name] = _Made(value, began, now() + SHARE * (now() - began))
        return value


class Recent(Generic[Value]):
    """The same for a part of an answer; it may be used from any thread."""

    def __init__(self) -> None:
        self._made: OrderedDict[str, tuple[Value, float]] = OrderedDict()

    def get(self, name: str, source: str | None, make: Callable[[], Value]) -> Value:
        began = time.monotonic()
        kept = self._made.get(name)
        if kept is not None and source is not None and began < kept[1]:
            return kept[0]
        value = make()
        while len(self._made) >= MOST:
            self._made.popitem(last=False)
        ended = time.monotonic()
        self._made[name] = (value, ended + SHARE * (ended - began))
        return value


async def _source(request: Request) -> str | None:
    source: str | None = request.state.source
    return source


Source = Annotated[str | None, Depends(_source)]
