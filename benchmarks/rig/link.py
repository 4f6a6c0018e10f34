"""A relay between workers and a service that is a slow link: its rates, its delay, and connections that break."""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import psutil

CHUNK: Final = 1 << 14
AHEAD: Final = 1 << 10
"""Chunks on their way in one direction, at most: more than rate times delay."""
DELAY_S: Final = 0.025
"""One way: 50 ms there and back."""
LATE_S: Final = 0.02
"""A wait that ended so late is made up for: a busy machine does not slow the link."""
BROKEN: Final = 0.01
"""The share of connections that break."""


@dataclass(frozen=True)
class Link:
    """`up`, `down`: Mbit/s, as the worker sees it."""

    up: float
    down: float

    @property
    def name(self) -> str:
        return f"{self.up:g}_{self.down:g}"


def seldom(drawn: random.Random, bytes_up: int) -> Callable[[], float]:
    """Returns after how many bytes up the next connection breaks: one of a hundred does, anywhere in `bytes_up`."""
    return lambda: drawn.uniform(0, bytes_up) if drawn.random() < BROKEN else float("inf")


class Direction:
    """All connections share its rate."""

    def __init__(self, mbit_s: float) -> None:
        self._rate = mbit_s * 1e6 / 8
        self._free_at = 0.0
        self.passed = 0

    async def serialise(self, length: int) -> None:
        """Waits until `length` bytes have left."""
        now = time.monotonic()
        self._free_at = max(self._free_at, now - LATE_S) + length / self._rate
        await asyncio.sleep(max(0.0, self._free_at - now))


class Relay:
    """A link to the service that this process started; `breaks`: bytes up after which each connection breaks."""

    def __init__(self, link: Link, breaks: Callable[[], float], delay_s: float = DELAY_S) -> None:
        self.up, self.down = Direction(link.up), Direction(link.down)
        self._service = 0
        self.connections = self.broken = self.port = 0
        self._breaks, self._delay_s = breaks, delay_s

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, ready: threading.Event, end: asyncio.Event) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        async with server:
            await end.wait()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._service = self._service or child_port()
        try:
            theirs, ours = await asyncio.open_connection("127.0.0.1", self._service)
        except OSError:  # the service is not there yet
            writer.close()
            return
        ways = [self._pass(reader, ours, self.up, self._breaks()), self._pass(theirs, writer, self.down, float("inf"))]
        tasks = [asyncio.create_task(way) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for end in (ours, writer):
            with suppress(OSError):
                end.close()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Direction, most: float
    ) -> None:
        """Until the connection ends, or breaks after `most` bytes."""
        on_their_way = asyncio.Queue[tuple[float, bytes]](AHEAD)
        arriving = asyncio.create_task(self._arrive(on_their_way, writer, way))
        try:
            while most > 0 and (chunk := (await reader.read(CHUNK))[: int(min(most, CHUNK))]):
                most -= len(chunk)
                await way.serialise(len(chunk))
                await on_their_way.put((time.monotonic() + self._delay_s, chunk))
            self.broken += most <= 0
            await on_their_way.join()
        except OSError:
            return
        finally:
            arriving.cancel()

    async def _arrive(
        self, on_their_way: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter, way: Direction
    ) -> None:
        while True:
            due, chunk = await on_their_way.get()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            with suppress(OSError):
                writer.write(chunk)
                await writer.drain()
            way.passed += len(chunk)
            on_their_way.task_done()


def child_port() -> int:
    """Returns a port on which a child process of this one listens; 0 while none does."""
    for child in psutil.Process().children():
        for open_ in child.net_connections("tcp"):
            if open_.status == psutil.CONN_LISTEN:
                return int(open_.laddr.port)
    return 0


@contextmanager
def relayed(relay: Relay) -> Iterator[Relay]:
    """Relays in a thread until the end of the block."""
    ready, loop, end = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(relay.serve(ready, end)), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield relay
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
