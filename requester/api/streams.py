"""A body that streams in: gathered into blocks, each of which a thread takes while the next one comes."""

import asyncio
from collections.abc import Callable
from typing import Final

from fastapi import HTTPException, Request
from starlette.concurrency import run_in_threadpool

from gradmarket.market.gradient.arrays import Bytes

BLOCK: Final = 1 << 20
"""Bytes: hashing and writing so many costs far more than the hop to a thread."""


async def streamed(request: Request, most: int, refusal: str, take: Callable[[Bytes], None]) -> int:
    """Gives the body to `take` piece by piece in its order; its length. More than `most` bytes are a 413 `refusal`."""
    length, gathered = 0, bytearray()
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
                if taking is not None:
                    await taking
                taking, gathered = asyncio.create_task(run_in_threadpool(take, block)), bytearray()
    finally:
        if taking is not None:
            await taking
    take(gathered)
    return length
