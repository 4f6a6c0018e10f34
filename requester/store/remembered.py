"""What never changes is read and parsed once in a process."""

from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Remembered(Generic[Value]):
    """At most `most` immutable values by the digest that fixes them; all are forgotten when there are more."""

    def __init__(self, most: int = 256) -> None:
        self._most = most
        self._values: dict[str, Value] = {}

    def peek(self, digest: str) -> Value | None:
        return self._values.get(digest)

    def keep(self, digest: str, value: Value) -> None:
        if len(self._values) >= self._most:
            self._values.clear()
        self._values[digest] = value

    def get(self, digest: str | None, make: Callable[[], Value]) -> Value:
        """The value that `make` gave for this digest; without a digest it is made each time."""
        if digest is None:
            return make()
        found = self.peek(digest)
        if found is None:
            found = make()
            self.keep(digest, found)
        return found
