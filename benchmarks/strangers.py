"""What one stranger's address does to others' job: its time with each kind of stranger over its time undisturbed.

The stranger has an address of its own (127.0.0.2), with the limits that every address has by default.
"""

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import urlsplit

import httpx

from benchmarks.figure import Figure
from benchmarks.rig.service import Service, service
from benchmarks.rig.workers import Worker, work
from gradmarket.market.terms import Address
from gradmarket.requester.api.auth_routes import WORKER
from gradmarket.requester.store import earned_rows, identities
from gradmarket.requester.store.session import begin, connect, sessions_of

PREFIX = "strangers."
THEIRS: Final = "127.0.0.2"
LIMITED: Final = {"GRADMARKET_UNLIMITED": '["127.0.0.1/32"]'}
REPLICAS: Final = 60
WORKERS: Final = 6
RUNS: Final = 3
ACCOUNTS: Final = 400
RATE: Final = 20.0
"""Ledgers a second."""
STREAMS: Final = 400
WALLETS, POLLERS = 8, 24
POLL: Final = json.dumps({"determinism_class": "bench", "capacity": 0, "wait_s": 0}).encode()


def measure() -> Iterator[Figure]:
    with service(shared=False, **LIMITED) as here:
        workers = [Worker(here) for _ in range(WORKERS)]
        crowded, tokens = _crowd(here)
        kinds: dict[str, Callable[[threading.Event], list[threading.Thread]]] = {
            "ledger": lambda over: _each(4, lambda _: _asks(here, over, f"/v1/jobs/{crowded}/ledger", RATE / 4)),
            "nonce": lambda over: _each(8, lambda _: _asks(here, over, "/v1/session/nonce", 1e6)),
            "letters": lambda over: _each(8, lambda _: _asks(here, over, "/v1/session", 1e6, _LETTERS)),
            "streams": lambda over: _each(STREAMS, lambda _: _follows(here, over, crowded)),
            "polls": lambda over: _each(POLLERS, lambda number: _polls(here, over, tokens[number % WALLETS])),
        }
        _job_s(here, workers)  # everybody is warm
        for kind, disturb in kinds.items():
            alone, beside = [], []
            for _ in range(RUNS):
                alone.append(_job_s(here, workers))
                with _disturbed(disturb):
                    beside.append(_job_s(here, workers))
            disturbed, calm = statistics.median(beside), statistics.median(alone)
            note = (
                f"medians of {RUNS} jobs of {REPLICAS} replicas: {disturbed:.1f} s beside it, {calm:.1f} s undisturbed"
            )
            yield Figure(f"strangers.{kind}.ratio", disturbed / calm, "", target="<= 1.2", note=note)


def _job_s(here: Service, workers: list[Worker]) -> float:
    """Until so many replicas of it are done."""
    here.post(rounds=1, tasks_per_round=REPLICAS // 3)
    began = time.perf_counter()
    work(workers, REPLICAS)
    return time.perf_counter() - began


def _crowd(here: Service) -> tuple[str, list[str]]:
    """A job with many accounts, paused so that nobody works on it, and the tokens of wallets never paid."""
    job, database, now = here.post(rounds=1, tasks_per_round=1), connect(here.address), time.time()
    headers = {"Authorization": f"Bearer {here.token}"}
    httpx.post(f"{here.url}/v1/jobs/{job}/pause", headers=headers).raise_for_status()
    with begin(sessions_of(database)) as session:
        addresses = [Address(f"0x{number:040x}") for number in range(1, ACCOUNTS + 1)]
        for address in addresses:
            identities.sign_in(session, address, address, None, now)
            session.flush()
            earned_rows.account(session, job, address)
        tokens = [identities.issue(session, WORKER, address, now + 86_400, now) for address in addresses[:WALLETS]]
    database.dispose()
    return job, tokens


@contextmanager
def _disturbed(disturb: Callable[[threading.Event], list[threading.Thread]]) -> Iterator[None]:
    over = threading.Event()
    threads = disturb(over)
    for thread in threads:
        thread.start()
    time.sleep(2.0)
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _each(count: int, act: Callable[[int], None]) -> list[threading.Thread]:
    return [threading.Thread(target=act, args=(number,), daemon=True) for number in range(count)]


@contextmanager
def _connected(here: Service) -> Iterator[HTTPConnection]:
    place = urlsplit(here.url)
    connection = HTTPConnection(str(place.hostname), place.port, timeout=10, source_address=(THEIRS, 0))
    try:
        yield connection
    finally:
        connection.close()


def _asks(here: Service, over: threading.Event, path: str, rate: float, body: bytes | None = None) -> None:
    """On a connection that is kept, and made again where it is closed."""
    while not over.is_set():
        with suppress(OSError, HTTPException), _connected(here) as connection:
            while not over.is_set():
                connection.request("POST" if body else "GET", path, body, _JSON)
                connection.getresponse().read()
                over.wait(1 / rate)


def _polls(here: Service, over: threading.Event, token: str) -> None:
    while not over.is_set():
        with suppress(OSError, HTTPException), _connected(here) as connection:
            while not over.is_set():
                connection.request("POST", "/v1/work/poll", POLL, {**_JSON, "Authorization": f"Bearer {token}"})
                connection.getresponse().read()


def _follows(here: Service, over: threading.Event, job: str) -> None:
    while not over.wait(1.0):
        with suppress(OSError, HTTPException), _connected(here) as connection:
            connection.request("GET", f"/v1/jobs/{job}/events")
            answer = connection.getresponse()
            while not over.is_set() and answer.readline():
                continue


_JSON: Final = {"Content-Type": "application/json"}
_LETTERS: Final = json.dumps({"message": "a" * 4_000, "signature": "0x" + "00" * 65}).encode()
