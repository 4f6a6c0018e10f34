"""Rate limits by token buckets, one for each address, token and wallet."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

FIRST_SWEEP = 4096


@dataclass(frozen=True, slots=True)
class Rate:
    """Allows `per_s` requests a second in the long run, and `burst` at once."""

    per_s: float
    burst: float


class Buckets:
    """One bucket for each name; full buckets are deleted, so that memory grows only with recent callers."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._buckets: dict[str | bytes, tuple[float, float]] = {}
        self._sweep_at = FIRST_SWEEP

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, name: str | bytes, price: float = 1.0) -> float:
        """Takes `price` requests out of the bucket, at most a full one.

        Returns zero or, if too few are left, the seconds until enough are; nothing is taken then.
        """
        price = min(price, self._rate.burst)
        now = self._clock()
        level, at = self._buckets.get(name, (self._rate.burst, now))
        level = min(self._rate.burst, level + (now - at) * self._rate.per_s)
        if level < price:
            return (price - level) / self._rate.per_s
        if len(self._buckets) >= self._sweep_at:
            self._forget_full_buckets(now)
        self._buckets[name] = (level - price, now)
        return 0.0

    def _forget_full_buckets(self, now: float) -> None:
        full_after = self._rate.burst / self._rate.per_s
        self._buckets = {name: entry for name, entry in self._buckets.items() if now - entry[1] < full_after}
        self._sweep_at = max(FIRST_SWEEP, 2 * len(self._buckets))


def retry_after(seconds: float) -> dict[str, str]:
    """Returns the Retry-After header (RFC 9110, 10.2.3), in whole seconds."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}
