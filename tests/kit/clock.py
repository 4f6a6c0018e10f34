"""A clock that a test sets."""

SOME_DAY = 1_800_000_000.0
"""Seconds since 1970."""


class Clock:
    def __init__(self, now: float = SOME_DAY) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
