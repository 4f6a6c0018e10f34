"""Wakes stages and long polls. A lost notification loses no work: the rows are the queue, and every listener sweeps."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

Relay = Callable[[Iterable[str]], None]
"""Called with the topics that this process notified, after the commit."""


class Notifier:
    """Notifies within one process: `notify(topics)` wakes their listeners, threads and coroutines alike."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: defaultdict[str, set[Callable[[], None]]] = defaultdict(set)
        self.closing = False
        """The service is shutting down: waiting requests should be answered now."""

    def close(self) -> None:
        """Marks the service as shutting down and wakes every listener."""
        self.closing = True
        with self._lock:
            topics = list(self._listeners)
        self.notify(topics)

    def promise(self, connection: Callable[[], Connection], topics: Iterable[str]) -> None:
        """Called within the transaction that notifies: its commit notifies the other processes. Here it
        does nothing.
        """

    def stop(self) -> None:
        """Releases the resources for listening to other processes."""

    def notify(self, topics: Iterable[str]) -> None:
        """Wakes the listeners in this process; called after the commit."""
        with self._lock:
            wakes = {wake for topic in topics for wake in self._listeners.get(topic, ())}
        for wake in wakes:
            wake()

    @contextmanager
    def _register_listener(self, topics: Iterable[str], wake: Callable[[], None]) -> Iterator[None]:
        chosen = tuple(topics)
        with self._lock:
            for topic in chosen:
                self._listeners[topic].add(wake)
        try:
            yield
        finally:
            with self._lock:
                for topic in chosen:
                    self._listeners[topic].discard(wake)
                    if not self._listeners[topic]:
                        del self._listeners[topic]

    @contextmanager
    def listen(self, topics: Iterable[str]) -> Iterator[threading.Event]:
        """For a thread: yields an event that every notification from here on sets; clear it before reading the rows."""
        notified = threading.Event()
        with self._register_listener(topics, notified.set):
            yield notified

    @contextmanager
    def listen_async(self, topics: Iterable[str], also: asyncio.Event | None = None) -> Iterator[asyncio.Event]:
        """For a coroutine, likewise; `also` is set together with the event, for a coroutine that waits for several."""
        notified = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hear() -> None:
            notified.set()
            if also is not None:
                also.set()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(hear)

        with self._register_listener(topics, wake):
            yield notified


async def rung_within(notified: asyncio.Event, seconds: float) -> bool:
    """Whether a notification came within `seconds`."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await notified.wait()
    except TimeoutError:
        return False
    return True


def job_topic(job_id: str) -> str:
    return f"job:{job_id}"


def worker_topic(address: str) -> str:
    return f"worker:{address}"


def ended_topic(address: str) -> str:
    """Returns the topic that is notified beside the worker's own when a job in which it has an account has ended."""
    return f"ended:{address}"
