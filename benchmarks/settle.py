"""How fast what was earned becomes money: batches from Python through Anvil, beside a token transfer each.

One step follows the other, so the CPU time of both processes is what it takes where the machine is not shared.
"""

import time
from collections.abc import Callable, Iterator

import psutil

from benchmarks.figure import Figure
from benchmarks.gas import Floor, batch, floor
from gradmarket.contracts import calls
from gradmarket.contracts.calls import Call
from gradmarket.contracts.packing import PackedGroup
from gradmarket.contracts.transactions import estimate, fees, mined, send, sign, wait
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Amount

PREFIX = "settle."
GRADIENTS = 3_500
"""In a batch, which stays below 128 KiB."""
WORKERS = 8
BATCHES, TRANSFERS = 15, 50
TIMEOUT_S = 60.0


def measure() -> Iterator[Figure]:
    with floor(WORKERS) as here:
        token = here.ledger.deployment.token
        transfer = calls.transfer(token, here.workers[0], Amount(1))
        single = 1 / _seconds(here, lambda: transfer, TRANSFERS)
        groups = batch(here.workers, GRADIENTS)
        began = time.perf_counter()
        rate = GRADIENTS / _seconds(here, lambda: _settlement(here, groups), BATCHES)
        wall = BATCHES * GRADIENTS / (time.perf_counter() - began)
    note = f"{GRADIENTS} to {WORKERS} workers: packed, estimated, signed, sent, mined; {wall:.0f}/s by the clock"
    yield Figure(
        "settle.gradients_per_s", rate, "gradients/s", "a token transfer each", rate / single, ">= 20000", note
    )


def _settlement(here: Floor, groups: list[PackedGroup]) -> Call:
    return calls.settle_packed(here.market, here.job, next(here.numbers), groups)


def _seconds(here: Floor, call: Callable[[], Call], times: int) -> float:
    """CPU of this process and of Anvil for one transaction."""
    before = _cpu(here)
    for _ in range(times):
        _send(here, call())
    return (_cpu(here) - before) / times


def _send(here: Floor, call: Call) -> None:
    """By the steps of the service's sender."""
    ledger, sender = here.ledger, address_of(here.key)
    gas = estimate(ledger.web3, sender, call)
    nonce, price = ledger.nonce(sender), fees(ledger.web3)
    signed = sign(here.key, ledger.deployment.chain_id, nonce, call, gas, price)
    send(ledger.web3, signed.raw)
    mined(wait(ledger.web3, signed.hash, TIMEOUT_S))


def _cpu(here: Floor) -> float:
    return sum(psutil.Process(pid).cpu_times()[part] for pid in (None, here.node) for part in (0, 1))
