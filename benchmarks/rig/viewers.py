"""Viewers of a job's page as a process of their own, until its standard input ends.

`python -m benchmarks.rig.viewers URL JOB COUNT`: prints a line once all of them follow the job's events.
"""

import asyncio
import sys
from contextlib import suppress
from typing import Final

import httpx

PAUSE_S: Final = 0.7
"""Least seconds between two refreshes of one viewer, as in the page's script."""


async def main(url: str, job: str, count: int) -> None:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as http:
        following = asyncio.Semaphore(0)
        views = [asyncio.create_task(_view(http, job, following)) for _ in range(count)]
        for _ in range(count):
            await following.acquire()
        print("following", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        for view in views:
            view.cancel()


async def _view(http: httpx.AsyncClient, job: str, following: asyncio.Semaphore) -> None:
    changed = asyncio.Event()
    refreshing = asyncio.create_task(_refresh(http, job, changed))
    with suppress(httpx.HTTPError):
        async with http.stream("GET", f"/v1/jobs/{job}/events") as events:
            following.release()
            async for line in events.aiter_lines():
                if line.startswith("event:"):
                    changed.set()
    refreshing.cancel()


async def _refresh(http: httpx.AsyncClient, job: str, changed: asyncio.Event) -> None:
    while True:
        await changed.wait()
        changed.clear()
        await http.get(f"/page/jobs/{job}")
        await asyncio.sleep(PAUSE_S)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
