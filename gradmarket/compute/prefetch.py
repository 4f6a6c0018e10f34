"""Loads values ahead of their use, in one thread, while something else is computed."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Generic, TypeVar

Thing = TypeVar("Thing")
Load = Callable[[], Thing]


class Prefetch(Generic[Thing]):
    """Caches the `kept` most recently requested values by name. A load that failed is retried on `take`."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._things: OrderedDict[str, Future[Thing]] = OrderedDict()
        self._queue: SimpleQueue[tuple[Future[Thing], Load[Thing]]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def expect(self, name: str, load: Load[Thing]) -> None:
        """Queues the value for loading unless it is cached or queued."""
        with self._lock:
            if name in self._things:
                return
            future = self._add_entry(name)
            if self._thread is None:
                self._thread = threading.Thread(target=self._load_queued, name="ahead", daemon=True)
                self._thread.start()
        self._queue.put((future, load))

    def take(self, name: str, load: Load[Thing]) -> Thing:
        """Returns the value: cached, awaited while it is being loaded, or loaded now. Raises as `load` does."""
        with self._lock:
            future = self._things.get(name)
            if future is None or future.cancel() or (future.done() and future.exception() is not None):
                future, mine = self._add_entry(name), True
            else:
                self._things.move_to_end(name)
                mine = False
        if not mine and future.exception() is None:
            return future.result()
        return self._load_now(name, future if mine else Future(), load)

    def _add_entry(self, name: str) -> Future[Thing]:
        """Adds an empty entry and evicts the least recently requested one."""
        self._things[name] = Future()
        self._things.move_to_end(name)
        while len(self._things) > self._kept:
            self._things.popitem(last=False)[1].cancel()
        return self._things[name]

    def _load_now(self, name: str, future: Future[Thing], load: Load[Thing]) -> Thing:
        try:
            future.set_result(load())
        except BaseException as error:
            future.set_exception(error)
            raise
        with self._lock:
            if name in self._things:
                self._things[name] = future
        return future.result()

    def _load_queued(self) -> None:
        while True:
            future, load = self._queue.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(load())
            except BaseException as error:  # noqa: BLE001  # `take` sees the error in the future
                future.set_exception(error)
