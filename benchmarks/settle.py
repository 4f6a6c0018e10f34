"""How fast what was earned becomes money: batches from Python through Anvil, beside a token transfer each."""

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from benchmarks.figure import Figure
from benchmarks.gas import Floor, batch, floor
from gradmarket.contracts import calls
from gradmarket.market.terms import Amount

PREFIX = "settle."
GRADIENTS = 3_500
"""In a batch, which stays below 128 KiB."""
WORKERS = 8
BATCHES, TRANSFERS = 11, 50


def measure() -> Iterator[Figure]:
    with floor(WORKERS) as here:
        single = 1 / median(_transfer(here) for _ in range(TRANSFERS))
        rate = GRADIENTS / median(_batch(here) for _ in range(BATCHES))
    note = f"{GRADIENTS} to {WORKERS} workers: packed, estimated, signed, sent, mined; median of {BATCHES}"
    yield Figure(
        "settle.gradients_per_s", rate, "gradients/s", "a token transfer each", rate / single, ">= 20000", note
    )


def _transfer(here: Floor) -> float:
    return _seconds(here.send, calls.transfer(here.ledger.deployment.token, here.workers[0], Amount(1)))


def _batch(here: Floor) -> float:
    groups = batch(here.workers, GRADIENTS)
    return _seconds(here.packed, groups)


def _seconds(call: Callable[..., Any], *arguments: Any) -> float:
    began = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - began
