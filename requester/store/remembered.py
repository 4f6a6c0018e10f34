"""A cache of immutable values, so that each is read and parsed once in a process."""

from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Remembered(Generic[Value]):
    """Caches at most `most` immutable values by the digest that fixes them; clears all of them when it is full."""

    def __init__(self, most: int = 256) -> None:
        self._most = most
        self._values: dict[str, Value] = {}

    def peek(self, digest: str) -> Value | None:
        return self._values.get(digest)

    def keep(self, digest: str, value: Value) -> None:
        if len(self._values) >= self._most:
            self._values.clear()
        self._values[digest] = value

    def drop(self, digest: str) -> None:
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
