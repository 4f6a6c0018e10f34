"""Idle workers: the cost of their long polls while nothing happens."""

import asyncio
import json
import random
import resource
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx

from benchmarks.figure import Figure
from benchmarks.rig.patience import PATIENCE_S
from benchmarks.rig.service import Service, service
from benchmarks.rig.wallets import sign_in_wallets
from benchmarks.size import sized
from gradmarket.market.wire.poll import MAX_WAIT_S

PREFIX = "poll"
MOST = sized(10_000, 20)
SPARE = 500
"""Descriptors that a process needs besides its polls."""
WATCHED_S = sized(60.0, 1.0)
"""Four times the interval at which all waiting workers are marked as present."""
IN_AT_ONCE = 50


def measure() -> Iterator[Figure]:
    count = min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE)
    with service(shared=False) as here:
        alone = _share(here)
        tokens = [token for _, token in sign_in_wallets(here, count)]
        share, peak, asked = asyncio.run(_watched(here, tokens))
    note = (
        f"{count} workers that ask for work, {MAX_WAIT_S:.0f} s a poll, begun at any time: {asked} of them asked anew "
    )
    yield Figure("poll.idle_0_cpu", alone, "% of a core", note="the service, with nobody there")
    yield Figure("poll.idle_10k_cpu", share, "% of a core", target="<= 5", note=f"{note}in the {WATCHED_S} s watched")
    yield Figure("poll.idle_10k_memory", peak / 1e9, "GB", target="<= 1", note=f"resident, {count} polls")


async def _watched(here: Service, tokens: list[str]) -> tuple[float, float, int]:
    """The share of a core, the resident bytes, and how many polls began in the time watched."""
    asked, door = [0], asyncio.Semaphore(IN_AT_ONCE)
    polls = [asyncio.create_task(_poll(here, token, asked, door)) for token in tokens]
    while not await asyncio.to_thread(_all_wait, here, len(tokens)):
        await asyncio.sleep(sized(5.0, 0.1))
    before = asked[0]
    share = await asyncio.to_thread(_share, here)
    found = share, float(here.process.memory_info().rss), asked[0] - before
    for poll in polls:
        poll.cancel()
    await asyncio.gather(*polls, return_exceptions=True)
    return found


def _share(here: Service) -> float:
    """Per cent of a core that it takes while WATCHED_S go by."""
    began, spent = time.perf_counter(), here.cpu_s()
    time.sleep(WATCHED_S)
    return 100 * (here.cpu_s() - spent) / (time.perf_counter() - began)


def _all_wait(here: Service, count: int) -> bool:
    return f"gradmarket_long_polls_open {float(count)}" in httpx.get(f"{here.url}/metrics", timeout=PATIENCE_S).text


async def _poll(here: Service, token: str, asked: list[int], door: asyncio.Semaphore) -> None:
    """The first wait is cut where this worker's stands when the watching begins."""
    place, wait_s = urlsplit(here.url), random.uniform(0, MAX_WAIT_S)
    async with door:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(_request(token, wait_s))
    while True:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readuntil(b"}")
        asked[0] += 1
        writer.write(_request(token, MAX_WAIT_S))


def _request(token: str, wait_s: float) -> bytes:
    body = json.dumps({"determinism_class": "bench", "capacity": 1, "wait_s": wait_s})
    head = f"POST /v1/work/poll HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
