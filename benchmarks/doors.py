"""CPU of one request of a stranger, at the worst of all routes."""

import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from eth_account import Account

from benchmarks.figure import Figure
from benchmarks.rig.hostile import Request, letters, requests
from benchmarks.rig.patience import PATIENCE_S
from benchmarks.rig.service import Service, service
from benchmarks.rig.wallets import sign_in_wallets
from benchmarks.rig.workers import Worker, work
from benchmarks.size import sized

PREFIX = "doors."
ASKED: Final = sized(10, 1)
"""Times that each is asked in a row."""
ROWS: Final = sized(3, 1)
"""Of which the cheapest counts: the service's stages work in between, and other processes share the machine."""
SLOW_MS: Final = sized(4.0, float("inf"))
AGAIN_S: Final = 5.0
"""Seconds before a request that took longer than SLOW_MS is measured again."""
WAITS_S: Final = 0.2
"""Requests that wait this long measure mostly the service's own work meanwhile."""
ACCOUNTS: Final = sized(400, 4)
JOBS: Final = sized(6, 1)
REPLICAS: Final = sized(120, 3)
IDLE_S: Final = sized(5.0, 0.1)
SETTLED_S: Final = sized(3.0, 0.0)
BARE: Final = (
    *("/openapi.json", "/docs", "/redoc"),
    *("/", "/page/market", "/jobs/{job_id}", "/page/jobs/{job_id}", "/jobs/{job_id}/tasks/{task_id}"),
    *("/workers/{address}", "/submit", "/operator", "/page/operator"),
    *("/errors", "/page/jobs/{job_id}/coverage", "/runs", "/page/runs"),
)
UNBOUND: Final = {
    "GRADMARKET_UNLIMITED": '["192.0.2.1/32"]',
    "GRADMARKET_ADDRESS_RATE": "1000000",
    "GRADMARKET_STRANGER_RATE": "1000000",
    "GRADMARKET_STRANGER_BURST": "1000000",
    "GRADMARKET_REFUSED_S": "0",
}
"""The benchmark is a stranger, which may ask as often as it measures."""


def measure() -> Iterator[Figure]:
    with service(shared=False, settings=UNBOUND) as here:
        places = _furnished(here)
        time.sleep(SETTLED_S)
        idle = _idle(here, IDLE_S)
        document = httpx.get(f"{here.url}/openapi.json", timeout=PATIENCE_S).json()
        costliest = 0.0
        for method, path, operation in _doors(document):
            worst, slowest = 0.0, ""
            for request in _sent(here, method, path, operation):
                asked = (here, method, path.format(**places), request, idle)
                took = min(_cpu_ms(*asked) for _ in range(ROWS))
                if took > SLOW_MS:  # the service may have been at work for itself: once more, later
                    time.sleep(AGAIN_S)
                    took = min(took, *(_cpu_ms(*asked) for _ in range(ROWS)))
                worst, slowest = max((worst, slowest), (took, request.label))
            note = f"CPU of one request, the mean of {ASKED} in a row; the worst is: {slowest}"
            yield Figure(f"doors.{method} {path}.worst_ms", worst, "ms", target="<= 5", note=note)
            costliest = max(costliest, worst)
        yield Figure("doors.worst_ms", costliest, "ms", target="<= 5", note="of all the above")


def _doors(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield method.upper(), path, operation
    yield from (("GET", path, {}) for path in BARE)
    yield "POST", "/page/plan", {"requestBody": {}}


def _sent(here: Service, method: str, path: str, operation: dict[str, Any]) -> Iterator[Request]:
    yield from requests(method, operation)
    if (method, path) == ("POST", "/v1/session"):
        nonce = httpx.get(f"{here.url}/v1/session/nonce", timeout=PATIENCE_S).json()["nonce"]
        yield from letters(nonce, Account.create().address, here.url)


def _furnished(here: Service) -> dict[str, str]:
    """A market with some history, and the ids that paths may name."""
    job, *_ = [here.post(rounds=2, tasks_per_round=REPLICAS // 3) for _ in range(JOBS)]
    work([Worker(here) for _ in range(3)], REPLICAS)
    *_, (address, _) = sign_in_wallets(here, ACCOUNTS, job)
    task = here.get(f"jobs/{job}/tasks")["items"][0]["id"]
    replica, digest = f"{task}-1", "blake3:" + "0" * 64
    places = {"job_id": job, "task_id": task, "replica": replica, "digest": digest, "address": address}
    return places | {
        "name": "made-up",
        "webhook_id": "0" * 16,
        "kind": "offer",
        "number": "1",
        "fence": "1",
        "attempt": "0",
        "step": "1",
    }


def _idle(here: Service, seconds: float) -> float:
    """CPU seconds a second that the idle service takes, over this many seconds."""
    began, spent = time.perf_counter(), here.own_cpu_s()
    time.sleep(seconds)
    return (here.own_cpu_s() - spent) / (time.perf_counter() - began)


def _cpu_ms(here: Service, method: str, path: str, request: Request, idle: float) -> float:
    place = urlsplit(here.url)
    target = f"{path}?{request.query}" if request.query else path
    began, spent = time.perf_counter(), here.own_cpu_s()
    for _ in range(ASKED):
        connection = HTTPConnection(str(place.hostname), place.port, timeout=PATIENCE_S)
        connection.request(method, target, request.body, request.headers)
        connection.getresponse().read()
        connection.close()
    took, spent = time.perf_counter() - began, here.own_cpu_s() - spent
    if took > ASKED * WAITS_S:
        idle = _idle(here, took)
    return max(0.0, 1000 * (spent - idle * took) / ASKED)
