"""A cache of immutable values, so that each is read and parsed once in a process."""

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Final, Generic, TypeVar

from cachetools import LRUCache

Value = TypeVar("Value")

MOST: Final = 8192
"""Values cached: more than the running jobs, since stages look at all of these in each sweep."""


class Remembered(Generic[Value]):
    """Caches at most `most` immutable values by the key that fixes them, and drops the least recently used one.

    It may be used from any thread.
    """

    def __init__(self, most: int = MOST) -> None:
        self._values: LRUCache[Hashable, Value] = LRUCache(most)
        self._lock = Lock()

    def peek(self, key: Hashable) -> Value | None:
        with self._lock:
            return self._values.get(key)

    def remember(self, key: Hashable, value: Value) -> None:
        with self._lock:
            self._values[key] = value

    def drop(self, key: Hashable) -> None:
        with self._lock:
            self._values.pop(key, None)

    def get(self, key: Hashable | None, make: Callable[[], Value]) -> Value:
        """Returns the cached value, else makes and caches it; without a key it is made each time."""
        if key is None:
            return make()
        value = self.peek(key)
        if value is None:
            value = make()
            self.remember(key, value)
        return value
