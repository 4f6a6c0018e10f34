"""A body that streams in: gathered into blocks, which threads take while the next ones come."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from fastapi import HTTPException, Request
from starlette.concurrency import run_in_threadpool

from gradmarket.market.gradient.arrays import Bytes

Taker = Callable[[Bytes], None]
BLOCK: Final = 1 << 20
"""Bytes: hashing and writing so many costs far more than the hop to a thread."""


async def streamed(request: Request, most: int, refusal: str, *takers: Taker) -> int:
    """Gives the body to every taker, piece by piece in its order; its length. More than `most` bytes: 413 `refusal`.

    Each takes one or two blocks at a time in a thread of its own, side by side with the others, while more come.
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
            if len(blocks) > 1 or (blocks and (taking is None or taking.done())):
                if taking is not None:
                    await taking
                taking, blocks = asyncio.create_task(_give(takers, blocks)), []
    finally:
        if taking is not None:
            await taking
    if blocks:
        await _give(takers, blocks)
    for taker in takers:
        taker(gathered)
    return length


async def _give(takers: Sequence[Taker], blocks: Sequence[Bytes]) -> None:
    """Raises what a taker raises, when all of them are done."""
    given = [run_in_threadpool(_take_all, taker, blocks) for taker in takers]
    for failed in await asyncio.gather(*given, return_exceptions=True):
        if isinstance(failed, BaseException):
            raise failed


def _take_all(taker: Taker, blocks: Sequence[Bytes]) -> None:
    for block in blocks:
        taker(block)
