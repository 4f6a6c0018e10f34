"""Reads a streamed body in blocks; a thread processes a block while the next ones come."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from fastapi import HTTPException, Request
from starlette.concurrency import run_in_threadpool

from gradmarket.market.gradient.arrays import Bytes

BLOCK: Final = 1 << 20
"""Bytes of a block; hashing and writing so many costs far more than switching to a thread."""
AT_ONCE: Final = 2
"""Blocks that are given to a thread at once."""


async def streamed(request: Request, most: int, refusal: str, take: Callable[[Bytes], None]) -> int:
    """Gives the body to `take` piece by piece, in order; returns its length.

    Raises 413 with `refusal` for a body of more than `most` bytes.
    """
    length, gathered = 0, bytearray()
    blocks: list[Bytes] = []
    taking: asyncio.Task[None] | None = None
    try:
        async for chunk in request.stream():
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
                if taking is not None:
                    await taking
                taking, blocks = asyncio.create_task(run_in_threadpool(_take_all, take, blocks)), []
    finally:
        if taking is not None:
            await taking
    if blocks:
        await run_in_threadpool(_take_all, take, blocks)
    take(gathered)
    return length


def _take_all(take: Callable[[Bytes], None], blocks: Sequence[Bytes]) -> None:
    for block in blocks:
        take(block)
