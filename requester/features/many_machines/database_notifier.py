"""Notifications across processes: NOTIFY goes with the commit, and each listening process has one connection for it.

A connection that breaks loses notifications. So every listener is woken when there is a new one, and reads the rows.
"""

import os
import secrets
import selectors
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
import structlog
from sqlalchemy import Connection
from sqlalchemy.engine import make_url

from requester.notifier import Notifier, Relay

CHANNEL: Final = "gradmarket"
MOST_BYTES: Final = 7_900
"""PostgreSQL accepts payloads shorter than 8000 bytes."""
RECONNECT_S: Final = 0.5

log = structlog.get_logger("gradmarket.notifier")


def address_of(url: str) -> str:
    """Returns SQLAlchemy's address of a database as psycopg reads it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


class DatabaseNotifier(Notifier):
    """`relay` passes topics on to the processes that run the stages elsewhere."""

    def __init__(self, url: str, relay: Relay | None = None) -> None:
        super().__init__()
        self._address = address_of(url)
        self._relay = relay
        self._name = secrets.token_hex(8)
        self._ears: _Ears | None = None
        self._starting = threading.Lock()

    def promise(self, connection: Callable[[], Connection], topics: Iterable[str]) -> None:
        for payload in build_notify_payloads(self._name, topics):
            connection().exec_driver_sql("SELECT pg_notify(%s, %s)", (CHANNEL, payload))

    def notify(self, topics: Iterable[str]) -> None:
        chosen = tuple(topics)
        super().notify(chosen)
        if self._relay is not None and chosen:
            self._relay(chosen)

    def stop(self) -> None:
        with self._starting:
            if self._ears is not None:
                self._ears.close()
                self._ears = None

    @contextmanager
    def _register_listener(self, topics: Iterable[str], wake: Callable[[], None]) -> Iterator[None]:
        with super()._register_listener(topics, wake):
            self._start_listening()
            yield

    def _start_listening(self) -> None:
        """Starts listening to other processes; a process that never listens takes no connection."""
        with self._starting:
            if self._ears is None:
                self._ears = _Ears(self._address, self._handle_payload, self._wake_all)

    def _handle_payload(self, payload: str) -> None:
        sender, *topics = payload.split("\n")
        if sender != self._name:  # our own listeners were woken at the commit
            super().notify(topics)

    def _wake_all(self) -> None:
        with self._lock:
            topics = list(self._listeners)
        super().notify(topics)


def build_notify_payloads(sender: str, topics: Iterable[str]) -> Iterator[str]:
    """Yields sender and topics, one a line, in as few payloads as PostgreSQL accepts."""
    lines: list[str] = []
    room = MOST_BYTES - len(sender)
    for topic in sorted(topics):
        size = len(topic.encode()) + 1
        if size > room:
            yield "\n".join([sender, *lines])
            lines, room = [], MOST_BYTES - len(sender)
        lines.append(topic)
        room -= size
    if lines:
        yield "\n".join([sender, *lines])


class _Ears:
    """A thread that listens on a connection of its own until `close`."""

    def __init__(self, address: str, heard: Callable[[str], None], connected: Callable[[], None]) -> None:
        self._address, self._heard, self._connected = address, heard, connected
        self._ended, self._end = os.pipe()
        self._thread = threading.Thread(target=self._run_loop, name="bell", daemon=True)
        self._thread.start()

    def close(self) -> None:
        os.close(self._end)
        self._thread.join()
        os.close(self._ended)

    def _run_loop(self) -> None:
        while not self._wait_for_close(0):
            try:
                with psycopg.connect(self._address, autocommit=True, client_encoding="utf8") as connection:
                    self._listen_on_connection(connection)
            except psycopg.Error as error:
                log.warning("the notifier lost its connection", part="database", error=str(error))
                self._wait_for_close(RECONNECT_S)

    def _listen_on_connection(self, connection: psycopg.Connection) -> None:
        connection.execute(f"LISTEN {CHANNEL}")
        self._connected()
        while not self._wait_for_close(None, connection.fileno()):
            for notice in connection.notifies(timeout=0):
                self._heard(notice.payload)

    def _wait_for_close(self, seconds: float | None, *others: int) -> bool:
        """Waits for `close`, or for one of the others to have something to read; returns whether it was `close`."""
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._ended, *others):
                selector.register(descriptor, selectors.EVENT_READ)
            return any(key.fd == self._ended for key, _ in selector.select(seconds))
