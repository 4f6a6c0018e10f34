"""The bound of an answer runs from the last byte that was sent: an upload may take longer than that."""

import asyncio
import threading
from collections.abc import AsyncIterator

import httpx
import pytest

from gradmarket.market.wire.poll import ANSWER_WITHIN
from gradmarket.network.async_transport import AsyncClockedTransport
from tests.network.servers import serving

BOUND_S = 300.0
BODY = bytes(1 << 20)


class Clock:
    """Sets the running loop's clock forward."""

    def __init__(self) -> None:
        self._loop, self._ahead = asyncio.get_running_loop(), 0.0
        self._time = self._loop.time
        self._loop.time = lambda: self._time() + self._ahead  # type: ignore[method-assign]

    def advance(self, seconds: float) -> None:
        self._ahead += seconds


async def put(url: str, pauses: list[float]) -> int:
    """Sends BODY in as many parts as there are pauses; the loop's clock goes on by one after each."""
    clock = Clock()

    async def parts() -> AsyncIterator[bytes]:
        for pause in pauses:
            yield BODY[: len(BODY) // len(pauses)]
            clock.advance(pause)
            await asyncio.sleep(0)

    async with httpx.AsyncClient(transport=AsyncClockedTransport()) as http:
        headers = {"content-length": str(len(BODY) // len(pauses) * len(pauses))}
        answer = await http.request(
            "POST", url, content=parts(), headers=headers, extensions={ANSWER_WITHIN: BOUND_S}, timeout=None
        )
    return answer.status_code


def test_an_upload_may_take_longer_than_the_bound_of_its_answer() -> None:
    with serving(lambda _method, _target, body: (200 if len(body) else 400, b"")) as url:
        assert asyncio.run(put(url, [0.9 * BOUND_S] * 4)) == 200


def test_an_answer_that_does_not_begin_within_the_bound_is_given_up() -> None:
    ended = threading.Event()

    def answer(*_asked: object) -> tuple[int, bytes]:
        ended.wait()
        return 200, b""

    with serving(answer) as url:
        try:
            with pytest.raises(httpx.ReadError, match="did not begin within"):
                asyncio.run(put(url, [0.0, 1.1 * BOUND_S]))
        finally:
            ended.set()
