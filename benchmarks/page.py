"""The web page: first paint of a large job in Chromium, an event on the screen, and viewers' cost.

The large job has 10,000 workers and 1,000 rounds, written as rows. A viewer holds the stream of the page's part, as the
page's script does.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser

from benchmarks.figure import Figure
from benchmarks.rig.browser import chromium
from benchmarks.rig.crowded_job import ROUNDS, WORKERS, crowd
from benchmarks.rig.service import Service, service
from benchmarks.rig.workers import Worker, work
from benchmarks.size import sized

PREFIX = "page."
RUNS: Final = sized(5, 1)
WORKING: Final = sized(6, 3)
VIEWED: Final = sized(3, 1)
VIEWERS: Final = sized(200, 2)
REPLICAS: Final = sized(60, 3)
PAINTED: Final = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"


def measure() -> Iterator[Figure]:
    with service(shared=False) as here:
        job = here.post(rounds=ROUNDS, tasks_per_round=1)
        crowd(here, job)
        size = f"{WORKERS} workers, {ROUNDS} rounds"
        with chromium() as browser:
            painted = statistics.median(_painted(browser, here, job) for _ in range(RUNS))
            yield Figure("page.first_paint_s", painted, "s", target="<= 1", note=f"median of {RUNS}, a job of {size}")
            seen = statistics.median(_seen(browser, here, job) for _ in range(RUNS))
            yield Figure("page.event_s", seen, "s", target="<= 1", note="from a pause or resume to its sentence")
    with service(shared=False, settings={"GRADMARKET_STREAMS": "2000"}) as here:
        yield _viewers(here)


def _painted(browser: Browser, here: Service, job: str) -> float:
    """Seconds from the navigation to the first contentful paint, in a new context: nothing is cached."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{here.url}/jobs/{job}")
    while not (painted := page.evaluate(PAINTED)):
        page.wait_for_timeout(20)
    seconds: float = painted / 1000
    context.close()
    return seconds


def _seen(browser: Browser, here: Service, job: str) -> float:
    """Seconds from a request that changes the job's state to the state on the screen."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{here.url}/jobs/{job}")
    page.locator("#link", has_text="live").wait_for()
    act, state = ("resume", "running") if page.locator(".state").inner_text() == "paused" else ("pause", "paused")
    began = time.perf_counter()
    here.act(job, act)
    page.locator(".state", has_text=state).wait_for()
    took = time.perf_counter() - began
    context.close()
    return took


def _viewers(here: Service) -> Figure:
    """Returns a job's time beside its viewers over its time alone, with a viewer's share of the processor."""
    workers = [Worker(here) for _ in range(WORKING)]
    _job_s(here, workers, False)  # everybody is warm
    alone, beside, taken = [], [], []
    for _ in range(VIEWED):
        alone.append(_job_s(here, workers, False)[0])
        seconds, share = _job_s(here, workers, True)
        beside.append(seconds)
        taken.append(share)
    ratio = statistics.median(beside) / statistics.median(alone)
    share = 100 * statistics.median(taken) / VIEWERS
    note = f"{VIEWERS} viewers, medians of {VIEWED}: a job of {REPLICAS} replicas; {share:.2f} % of a core a viewer"
    return Figure("page.viewers.ratio", ratio, "", target="<= 1.2", note=f"{note}, the job's own work among it")


def _job_s(here: Service, workers: list[Worker], watched: bool) -> tuple[float, float]:
    """Seconds until the job's replicas are done, and cores that the service took meanwhile."""
    job = here.post(rounds=1, tasks_per_round=REPLICAS // 3)
    with _watching(here, job) if watched else _nobody():
        began, spent = time.perf_counter(), here.own_cpu_s()
        work(workers, REPLICAS)
        took = time.perf_counter() - began
        return took, (here.own_cpu_s() - spent) / took


@contextmanager
def _nobody() -> Iterator[None]:
    yield


@contextmanager
def _watching(here: Service, job: str) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.rig.viewers", here.url, job, str(VIEWERS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as viewers:
        assert viewers.stdin is not None
        assert viewers.stdout is not None
        viewers.stdout.readline()  # all of them follow
        yield
        viewers.stdin.close()
        viewers.wait()
