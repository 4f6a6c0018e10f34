"""The service's CPU for each viewer of a job's page and change.

The job is paused and resumed; each change is waited for by all viewers before the next one.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Final

import httpx

from benchmarks.figure import Figure
from benchmarks.rig.service import Service, service
from benchmarks.size import sized

PREFIX = "viewers."
VIEWERS: Final = sized(100, 2)
CHANGES: Final = sized(12, 2)
QUIET_S: Final = sized(2.0, 0.5)
STREAM: Final = {"Accept": "text/event-stream"}
TARGET: Final = "<= 0.5"


def measure() -> Iterator[Figure]:
    with service(shared=False, settings={"GRADMARKET_STREAMS": "2000"}) as here:
        job = here.post(rounds=1, tasks_per_round=20)
        asked, sent = (asyncio.run(_cpu_ms(here, job, streamed)) for streamed in (False, True))
    note = f"of the service, {VIEWERS} viewers, {CHANGES} changes; the peer took {asked:.2f} ms"
    yield Figure("viewers.cpu_ms", sent, "ms", "a request after each event", sent / asked, TARGET, note)


async def _cpu_ms(here: Service, job: str, streamed: bool) -> float:
    got = asyncio.Semaphore(0)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=here.url, timeout=None, limits=limits) as http:
        views = [asyncio.create_task(_view(http, job, streamed, got)) for _ in range(VIEWERS)]
        await asyncio.to_thread(_change, here, job)
        used = 0.0
        for _ in range(CHANGES):
            await _quiet(got)
            before = here.own_cpu_s()
            await asyncio.to_thread(_change, here, job)
            for _ in range(VIEWERS):
                await got.acquire()
            used += here.own_cpu_s() - before
        for view in views:
            view.cancel()
        await asyncio.gather(*views, return_exceptions=True)
    return 1000 * used / CHANGES / VIEWERS


def _change(here: Service, job: str) -> None:
    state = here.get(f"jobs/{job}")["state"]
    here.act(job, "resume" if state == "paused" else "pause")


async def _quiet(got: asyncio.Semaphore) -> None:
    """Waits until nothing came for QUIET_S."""
    until = time.monotonic() + QUIET_S
    while time.monotonic() < until:
        await asyncio.sleep(0.1)
        while not got.locked():
            await got.acquire()
            until = time.monotonic() + QUIET_S


async def _view(http: httpx.AsyncClient, job: str, streamed: bool, got: asyncio.Semaphore) -> None:
    page = f"/page/jobs/{job}"
    async with http.stream("GET", page if streamed else f"/v1/jobs/{job}/events", headers=STREAM) as events:
        async for line in events.aiter_lines():
            if line.startswith("event:"):
                if not streamed:
                    await http.get(page)
                got.release()
