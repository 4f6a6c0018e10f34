"""A cache of immutable values, so that each is read and parsed once in a process."""

from collections.abc import Callable
from threading import Lock
from typing import Final, Generic, TypeVar

from cachetools import LRUCache

Value = TypeVar("Value")

MOST: Final = 8192
"""Values cached: more than there are running jobs, since stages look at all of these in each sweep."""


class Remembered(Generic[Value]):
    """Caches at most `most` immutable values by the digest that fixes them; drops the one that was used longest ago.

    It may be used from any thread.
    """

    def __init__(self, most: int = MOST) -> None:
        self._values: LRUCache[str, Value] = LRUCache(most)
        self._lock = Lock()

    def peek(self, digest: str) -> Value | None:
        with self._lock:
            return self._values.get(digest)

    def keep(self, digest: str, value: Value) -> None:
        with self._lock:
            self._values[digest] = value

    def drop(self, digest: str) -> None:
        with self._lock:
            self._values.pop(digest, None)

    def get(self, digest: str | None, make: Callable[[], Value]) -> Value:
        """Returns the cached value, else makes and caches it; without a digest it is made each time."""
        if digest is None:
            return make()
        value = self.peek(digest)
        if value is None:
            value = make()
            self.keep(digest, value)
        return value
