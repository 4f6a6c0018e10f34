"""Viewers of a job's page as a process of their own, until its standard input ends.

`python -m benchmarks.rig.viewers URL JOB COUNT`: prints a line once all of them have the page's part.
"""

import asyncio
import sys
from contextlib import suppress

import httpx


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
    with suppress(httpx.HTTPError):
        async with http.stream("GET", f"/page/jobs/{job}", headers={"Accept": "text/event-stream"}) as parts:
            first = True
            async for _ in parts.aiter_raw():
                if first:
                    following.release()
                    first = False


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
