"""Wakes stages and long polls. A lost notification loses nothing: the rows are the queue, and every listener sweeps."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from sqlalchemy.orm import Session


class Notifier:
    """In one process: `ring(topic)` wakes whoever listens to it, threads and coroutines alike."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: defaultdict[str, set[Callable[[], None]]] = defaultdict(set)
        self.closing = False
        """The service is about to end: whoever waits should answer now."""

    def close(self) -> None:
        """Wakes everybody, once and for all."""
        self.closing = True
        with self._lock:
            topics = list(self._listeners)
        self.notify(topics)

    def promise(self, session: Session, topics: Iterable[str]) -> None:
        """Within the transaction that rings: with its commit, other processes hear of it."""

    def stop(self) -> None:
        """Gives back what hearing other processes took."""

    def notify(self, topics: Iterable[str]) -> None:
        """After the commit: wakes those who listen in this process."""
        with self._lock:
            wakes = {wake for topic in topics for wake in self._listeners.get(topic, ())}
        for wake in wakes:
            wake()

    @contextmanager
    def _listening(self, topics: Iterable[str], wake: Callable[[], None]) -> Iterator[None]:
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
        """For a thread: the event is set at every ring from here on; clear it before looking at the rows."""
        notified = threading.Event()
        with self._listening(topics, notified.set):
            yield notified

    @contextmanager
    def listen_async(self, topics: Iterable[str], also: asyncio.Event | None = None) -> Iterator[asyncio.Event]:
        """For a coroutine, likewise; who waits for `also` is woken too, and then finds the event set."""
        notified = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hear() -> None:
            notified.set()
            if also is not None:
                also.set()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(hear)

        with self._listening(topics, wake):
            yield notified


async def rung_within(notified: asyncio.Event, seconds: float) -> bool:
    """Whether the notifier rang before `seconds` were over."""
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
    """Rung beside the worker's own when a job in which it has an account has ended."""
    return f"ended:{address}"
