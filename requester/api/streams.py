"""Reads a streamed body in blocks; a thread processes a block while the next ones come."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final

from fastapi import HTTPException, Request
from starlette.concurrency import run_in_threadpool

from gradmarket.market.wire.framing import DIGEST, HEAD
from graphdoc.encoding import Bytes

BLOCK: Final = 1 << 20
"""Bytes of a block; hashing and writing one costs far more than switching to a thread."""
AT_ONCE: Final = 2
"""Blocks that are given to a thread at once."""


class Parts:
    """A body that is read in parts, one after the other."""

    def __init__(self, request: Request) -> None:
        self._chunks = request.stream()
        self._left = memoryview(b"")

    async def read_exactly(self, length: int) -> bytearray:
        """Returns the next part as a whole; raises 400 where the body ends before.

        No chunk is kept: one of a few bytes takes two hundred.
        """
        part = bytearray()
        async for chunk in self.next(length):
            part += chunk
        if len(part) != length:
            raise _build_cut_refusal(len(part), length)
        return part

    async def read_message(self, seconds: float, most: int, longer: str, name: str) -> bytes:
        """Returns the JSON that begins the body, after its length in four bytes (market.wire.framing).

        Raises 413 with `longer` for one of more than `most` bytes, and 408 where it takes more than `seconds`.
        """
        try:
            async with asyncio.timeout(seconds):
                length = int.from_bytes(await self.read_exactly(HEAD), "big")
                if length > most:
                    raise HTTPException(413, longer)
                return bytes(await self.read_exactly(length))
        except TimeoutError as error:
            late = f"{name} did not come within {seconds:.0f} s"
            raise HTTPException(408, late, {"Connection": "close"}) from error

    async def consume_exactly(self, length: int, take: Callable[[Bytes], None]) -> None:
        """Passes the next part to `take`, in blocks, like `consume_stream`; raises 400 where the body ends before."""
        came = await consume_stream(self.next(length), length, "", take)
        if came != length:
            raise _build_cut_refusal(came, length)

    async def next(self, length: int) -> AsyncIterator[Bytes]:
        """Yields the next part, of `length` bytes or of fewer where the body ends, without copying it."""
        while length > 0 and await self._has_more():
            chunk, self._left = self._left[:length], self._left[length:]
            length -= len(chunk)
            yield chunk

    async def end(self) -> None:
        """Raises 413 where more follows."""
        if await self._has_more():
            raise HTTPException(413, "the body is longer than the payloads that the request names")

    async def _has_more(self) -> bool:
        """Returns whether the body has another byte."""
        while not self._left:
            try:
                self._left = memoryview(await anext(self._chunks))
            except StopAsyncIteration:
                return False
        return True


def _build_cut_refusal(came: int, length: int) -> HTTPException:
    return HTTPException(400, f"{came} of {length} bytes arrived: send them again")


async def by_pieces(parts: Parts, sizes: Iterable[int], take: Callable[[bytes, Bytes], None]) -> None:
    """Passes each piece and the digest before it to `take`, in a thread while the next one comes.

    Complete pieces before an interruption are taken. Raises 400 where the body ends early, and the errors of `take`.
    """
    taking: asyncio.Task[None] | None = None
    try:
        for size in sizes:
            digest, piece = await parts.read_exactly(DIGEST), await parts.read_exactly(size)
            await _wait_for_thread(taking)
            taking = asyncio.create_task(run_in_threadpool(take, bytes(digest), piece))
    finally:
        await _wait_for_thread(taking)


async def consume_stream(chunks: AsyncIterator[Bytes], most: int, refusal: str, take: Callable[[Bytes], None]) -> int:
    """Passes the body to `take` piece by piece, in order; returns its length.

    Raises 413 with `refusal` for a body of more than `most` bytes.
    """
    length, gathered = 0, bytearray()
    blocks: list[Bytes] = []
    taking: asyncio.Task[None] | None = None
    try:
        async for chunk in chunks:
            length += len(chunk)
            if length > most:
                raise HTTPException(413, refusal)
            block: Bytes = chunk
            if gathered or len(chunk) < BLOCK:
                gathered += chunk
                block = gathered
            if len(block) >= BLOCK:
                blocks.append(block)
                gathered = bytearray()
            if len(blocks) == AT_ONCE or (blocks and (taking is None or taking.done())):
                await _wait_for_thread(taking)
                taking, blocks = asyncio.create_task(run_in_threadpool(_take_all, take, blocks)), []
    finally:  # of a body that breaks off, all that came is taken: it may go on there
        await _wait_for_thread(taking)
        if blocks:
            await run_in_threadpool(_take_all, take, blocks)
        take(gathered)
    return length


async def _wait_for_thread(taking: asyncio.Task[None] | None) -> None:
    """Raises the thread's error. A body that is ended waits for its thread in `finally`: awaited itself, the task would
    be ended too, and its thread would go on with a file that the next request opens.
    """
    if taking is not None:
        await asyncio.wait([taking])
        taking.result()


def _take_all(take: Callable[[Bytes], None], blocks: Sequence[Bytes]) -> None:
    for block in blocks:
        take(block)
