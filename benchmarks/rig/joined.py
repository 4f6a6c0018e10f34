"""Two network namespaces joined by a slow link: for programs that choose ports and addresses by themselves.

Each end is a TUN device whose packets this process passes on at the link's rate, after its delay. Linux, as root.
"""

import asyncio
import fcntl
import os
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from benchmarks.rig.link import AHEAD, DELAY_S, Direction, Link
from benchmarks.rig.reset import parsed

MTU: Final = 16_000
"""Bytes of a packet: about as many as the relay of the market's workers passes on at once."""
DEVICE: Final = "gm0"
ADDRESSES: Final = {"a": "10.90.0.1", "b": "10.90.0.2"}
_SET, _TUN, _BARE = 0x400454CA, 0x0001, 0x1000


class Wire:
    """Both directions have the link's rate up, the smaller one: one worker's upload is the other's download.

    `breaks_after`: bytes in the first direction after which the connection that sends just then is reset, once.
    """

    def __init__(self, link: Link, breaks_after: float = float("inf")) -> None:
        self.ways = (Direction(link.up), Direction(link.up))
        self.broken = 0
        self._left = breaks_after

    async def carry(self, ends: tuple[int, int], over: asyncio.Event) -> None:
        queues = [asyncio.Queue[tuple[float, bytes]](AHEAD) for _ in self.ways]
        moving = [self._leave(ends[way], queues[way], way) for way in (0, 1)]
        moving += [_arrive(queues[way], ends[1 - way]) for way in (0, 1)]
        tasks = [asyncio.create_task(each) for each in moving]
        await over.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _leave(self, end: int, on_their_way: "asyncio.Queue[tuple[float, bytes]]", way: int) -> None:
        while True:
            packet = self.passed(await _packet(end), way)
            await self.ways[way].serialise(len(packet))
            self.ways[way].passed += len(packet)
            await on_their_way.put((time.monotonic() + DELAY_S, packet))

    def passed(self, packet: bytes, way: int) -> bytes:
        """Returns the packet, or one that resets its connection in its place."""
        if way or self.broken:
            return packet
        self._left -= len(packet)
        tcp = parsed(packet) if self._left < 0 else None
        if tcp is None or not tcp.length:
            return packet
        self.broken += 1
        return tcp.reset()


async def _packet(end: int) -> bytes:
    loop = asyncio.get_running_loop()
    while True:
        try:
            return os.read(end, MTU)
        except BlockingIOError:
            ready = asyncio.Event()
            loop.add_reader(end, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(end)


async def _arrive(on_their_way: "asyncio.Queue[tuple[float, bytes]]", end: int) -> None:
    while True:
        due, packet = await on_their_way.get()
        await asyncio.sleep(due - time.monotonic())
        os.write(end, packet)


@contextmanager
def joined(wire: Wire) -> Iterator[tuple[list[str], list[str]]]:
    """Gives the words to put before a command that is to run at either end; the link ends with the block."""
    with ExitStack() as stack:
        ends = [stack.enter_context(_end(f"gm{os.getpid()}{name}", address)) for name, address in ADDRESSES.items()]
        loop, over = asyncio.new_event_loop(), asyncio.Event()
        carried = wire.carry((ends[0][1], ends[1][1]), over)
        thread = threading.Thread(target=lambda: loop.run_until_complete(carried), daemon=True)
        thread.start()
        try:
            first, second = (["ip", "netns", "exec", name] for name, _ in ends)
            yield first, second
        finally:
            loop.call_soon_threadsafe(over.set)
            thread.join()
            loop.close()


@contextmanager
def _end(name: str, address: str) -> Iterator[tuple[str, int]]:
    """A namespace of that name, and its device, which is made here and then moved there. Raises CalledProcessError."""
    _ip("netns", "add", name)
    try:
        end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        try:
            fcntl.ioctl(end, _SET, struct.pack("16sH22x", name.encode(), _TUN | _BARE))
            _ip("link", "set", name, "netns", name)
            _ip("-n", name, "link", "set", name, "name", DEVICE)
            _ip("-n", name, "address", "add", f"{address}/24", "dev", DEVICE)
            _ip("-n", name, "link", "set", DEVICE, "mtu", str(MTU), "up")
            _ip("-n", name, "link", "set", "lo", "up")
            yield name, end
        finally:
            os.close(end)
    finally:
        _ip("netns", "del", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
