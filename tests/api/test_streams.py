"""A streamed body is taken whole and in order, one block at a time; excess and failures raise."""

import asyncio
import threading
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from fastapi import HTTPException, Request
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.wire.framing import DIGEST
from graphdoc.encoding import Bytes
from requester.api import streams
from tests.patience import pause, wait_beside, wait_for

BLOCK = 64
CHUNKS = st.lists(st.binary(max_size=3 * BLOCK), max_size=12)


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK", BLOCK)
        yield


def body_of(chunks: Sequence[bytes]) -> Request:
    told = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    told.append({"type": "http.request", "body": b"", "more_body": False})
    messages = iter(told)

    async def receive() -> dict[str, Any]:
        return next(messages)

    return Request({"type": "http", "method": "PUT", "headers": []}, receive)


def played(chunks: Sequence[bytes], take: Callable[[Bytes], None], most: int = 10_000) -> int:
    return asyncio.run(streams.consume_stream(body_of(chunks).stream(), most, "too long", take))


class Taking:
    """Hears of no two blocks at once."""

    def __init__(self) -> None:
        self.taken = bytearray()
        self._busy = False

    def __call__(self, block: Bytes) -> None:
        assert not self._busy
        self._busy = True
        self.taken.extend(memoryview(block))
        self._busy = False


@given(CHUNKS)
def test_every_byte_comes_in_its_order_and_one_block_at_a_time(chunks: list[bytes]) -> None:
    taking = Taking()
    assert played(chunks, taking) == len(taking.taken)
    assert taking.taken == b"".join(chunks)


@given(CHUNKS, st.integers(0, 300))
def test_no_more_is_taken_than_may_come(chunks: list[bytes], most: int) -> None:
    taken = bytearray()
    length = len(b"".join(chunks))
    if length <= most:
        assert played(chunks, taken.extend, most=most) == length
        return
    with pytest.raises(HTTPException, match="too long") as refused:
        played(chunks, taken.extend, most=most)
    assert refused.value.status_code == 413
    assert len(taken) <= most


@pytest.mark.parametrize("pieces", [1, 3])
def test_an_error_of_the_consumer_reaches_the_sender(pieces: int) -> None:
    """Such as a full disk, in the thread and at the end."""

    def take(_block: Bytes) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        played([bytes(BLOCK)] * pieces, take)


def test_a_part_that_comes_two_bytes_at_a_time_takes_little_more_memory_than_it_is_long() -> None:
    chunks = [number.to_bytes(2, "big") for number in range(1 << 15)]
    parts, length = streams.Parts(body_of(chunks)), 2 * len(chunks)
    tracemalloc.start()
    try:
        part = asyncio.run(parts.read_exactly(length))
        _now, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert part == b"".join(chunks)
    assert most < 8 * length


@pytest.mark.parametrize("in_pieces", [False, True])
def test_a_body_that_is_ended_waits_for_its_thread(in_pieces: bool) -> None:
    """Else that thread reads a file which the next request of this upload cuts off: that would end the process."""

    async def play() -> None:
        taking, may_end = threading.Event(), threading.Event()

        def take(*_block: Bytes) -> None:
            taking.set()
            wait_for(may_end)

        body = body_of([bytes(DIGEST + BLOCK)] * 9)
        if in_pieces:
            reading = asyncio.create_task(streams.by_pieces(streams.Parts(body), [BLOCK] * 9, take))
        else:
            reading = asyncio.create_task(as_none(streams.consume_stream(body.stream(), 10_000, "", take)))
        await wait_beside(taking.is_set)
        await pause()
        reading.cancel()
        await pause()
        ended = reading.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert not ended

    asyncio.run(play())


async def as_none(awaited: Awaitable[object]) -> None:
    await awaited
