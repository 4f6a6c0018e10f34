"""Idle workers: what long polls cost while nothing happens."""

import asyncio
import json
import resource
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from benchmarks.figure import Figure
from benchmarks.rig.service import Service, service
from benchmarks.rig.workers import Worker

PREFIX = "poll"
MOST = 10_000
SPARE = 500
"""Descriptors that a process needs besides its polls."""
WAIT_S, WATCHED_S = 30, 20


def measure() -> Iterator[Figure]:
    count = min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE)
    with service(shared=False, GRADMARKET_TOKEN_BURST=str(10 * MOST), GRADMARKET_WALLET_BURST=str(10 * MOST)) as here:
        share, peak = asyncio.run(_watched(here, count))
    note = f"{count} polls of one worker's token, {WAIT_S} s each, watched for {WATCHED_S} s between two of them"
    yield Figure("poll.idle_10k_cpu", share, "% of a core", target="<= 5", note=note)
    yield Figure("poll.idle_10k_memory", peak / 1e9, "GB", target="<= 1", note=f"resident, {count} polls")


async def _watched(here: Service, count: int) -> tuple[float, float]:
    request = _request(here)
    polls = [asyncio.create_task(_poll(here, request)) for _ in range(count)]
    before = -1.0
    while here.cpu_s() - before > 0.1:  # all of them are in
        before = here.cpu_s()
        await asyncio.sleep(1.0)
    began, spent = time.perf_counter(), here.cpu_s()
    await asyncio.sleep(WATCHED_S)
    share = 100 * (here.cpu_s() - spent) / (time.perf_counter() - began)
    memory = float(here.process.memory_info().rss)
    for poll in polls:
        poll.cancel()
    await asyncio.gather(*polls, return_exceptions=True)
    return share, memory


def _request(here: Service) -> bytes:
    token = Worker(here).token
    body = json.dumps({"determinism_class": "bench", "wait_s": WAIT_S})
    head = f"POST /v1/work/poll HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


async def _poll(here: Service, request: bytes) -> None:
    place = urlsplit(here.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    while True:
        writer.write(request)
        await reader.readuntil(b"\r\n\r\n")
        await reader.readuntil(b"}")
