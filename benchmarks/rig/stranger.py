"""One stranger as a process of its own: it disturbs the service from its address until its standard input ends.

`python -m benchmarks.rig.stranger URL KIND JOB [TOKEN…]`: it must not slow the workers that are measured beside it.
"""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import urlsplit

ADDRESS: Final = "127.0.0.2"
RATE: Final = 20.0
"""Ledgers a second."""
STREAMS: Final = 400
POLLERS: Final = 24
POLL: Final = json.dumps({"determinism_class": "bench", "capacity": 0, "wait_s": 0}).encode()
ASK: Final = json.dumps({"determinism_class": "another", "capacity": 1, "wait_s": 0.01}).encode()
"""It asks for a lease that it cannot get."""


def main(url: str, kind: str, job: str, tokens: list[str]) -> None:
    over = threading.Event()
    acts: dict[str, tuple[int, Callable[[int], None]]] = {
        "ledger": (4, lambda _: _send_requests(url, over, f"/v1/jobs/{job}/ledger", RATE / 4)),
        "nonce": (8, lambda _: _send_requests(url, over, "/v1/session/nonce", 1e6)),
        "letters": (8, lambda _: _send_requests(url, over, "/v1/session", 1e6, _LETTERS)),
        "streams": (STREAMS, lambda _: _follows(url, over, job)),
        "polls": (POLLERS, lambda number: _polls(url, over, tokens[number % len(tokens)], POLL)),
        "asks": (POLLERS, lambda number: _polls(url, over, tokens[number % len(tokens)], ASK)),
    }
    count, act = acts[kind]
    threads = [threading.Thread(target=act, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    sys.stdin.read()


@contextmanager
def _connected(url: str) -> Iterator[HTTPConnection]:
    place = urlsplit(url)
    connection = HTTPConnection(str(place.hostname), place.port, timeout=10, source_address=(ADDRESS, 0))
    try:
        yield connection
    finally:
        connection.close()


def _send_requests(url: str, over: threading.Event, path: str, rate: float, body: bytes | None = None) -> None:
    """On a connection that is kept, and made again where it is closed."""
    while not over.is_set():
        with suppress(OSError, HTTPException), _connected(url) as connection:
            while not over.is_set():
                connection.request("POST" if body else "GET", path, body, _JSON)
                connection.getresponse().read()
                over.wait(1 / rate)


def _polls(url: str, over: threading.Event, token: str, body: bytes) -> None:
    while not over.is_set():
        with suppress(OSError, HTTPException), _connected(url) as connection:
            while not over.is_set():
                connection.request("POST", "/v1/work/poll", body, {**_JSON, "Authorization": f"Bearer {token}"})
                connection.getresponse().read()


def _follows(url: str, over: threading.Event, job: str) -> None:
    while not over.wait(1.0):
        with suppress(OSError, HTTPException), _connected(url) as connection:
            connection.request("GET", f"/v1/jobs/{job}/events")
            answer = connection.getresponse()
            while not over.is_set() and answer.readline():
                continue


_JSON: Final = {"Content-Type": "application/json"}
_LETTERS: Final = json.dumps({"message": "a" * 4_000, "signature": "0x" + "00" * 65}).encode()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
