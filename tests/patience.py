"""The longest wait of tests for an event: one limit, far beyond a busy machine's need, for every one of them.

A test waits for an event. An event that never comes fails the test by its name; no test passes or fails by the speed
of the machine, nor measures a time. Where a rule has a time of its own, the test gives the clock.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

PATIENCE_S: Final = 600.0
"""For one event: an answer, a process that ends, a state that a job comes to."""
TEST_S: Final = 3 * PATIENCE_S
"""For a whole test, which may wait for several."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.25
"""Between two looks at things without notification, such as another process's file or port; each pause is longer."""

Seen = TypeVar("Seen")


def wait_until(
    seen: Callable[[], Seen], what: object = "what was waited for", meanwhile: Callable[[], object] | None = None
) -> Seen:
    """Returns the first true answer of `seen`, and does `meanwhile` between two looks; without one it pauses.

    Raises AssertionError where it has not come within PATIENCE_S: `what` names it, or returns the present state.
    """
    end, pause_s = time.monotonic() + PATIENCE_S, FIRST_PAUSE_S
    while not (found := seen()):
        if time.monotonic() > end:
            raise AssertionError(f"it never came: {what() if callable(what) else what}")
        if meanwhile is None:
            time.sleep(pause_s)
            pause_s = min(1.2 * pause_s, LONGEST_PAUSE_S)
        else:
            meanwhile()
    return found


async def wait_beside(seen: Callable[[], Seen]) -> Seen:
    """As `wait_until`, while the rest of this event loop goes on."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := seen()):
            await pause()
    return found


async def pause(seconds: float = FIRST_PAUSE_S) -> None:
    """Between two looks of an event loop, or two words of a peer that a test plays there."""
    await asyncio.sleep(seconds)


def wait_for(event: threading.Event) -> None:
    """Raises AssertionError where nobody sets it."""
    assert event.wait(PATIENCE_S), "nobody set it"


def wait_for_end(*threads: threading.Thread) -> None:
    """Raises AssertionError where one of them does not end."""
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"it never ended: {thread.name}"


def dawdle(seconds: float) -> None:
    """Sleeps as a slow peer that a test plays. No test waits by it for an event."""
    time.sleep(seconds)
