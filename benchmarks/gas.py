"""Gas for an accepted gradient, on Anvil: batches of both kinds, reservations and vouchers, against a transfer each."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from eth_keys.datatypes import PrivateKey

from benchmarks.figure import Figure
from benchmarks.size import sized
from contracts import calls, events
from contracts.calls import Call, OpenJob
from contracts.deployment import deploy_market
from contracts.ledger import Ledger
from contracts.local import LocalChain, development_key, fund_gas
from contracts.packing import PackedGroup
from contracts.proofs import batch_root
from contracts.transaction_types import Receipt
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.messages import Voucher
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Address, Amount, Hash, Units

PREFIX = "gas."
PRICE = Units(10**6)
DAY = 86_400
WORKERS = sized((1, 8, 64), (1, 8))
GRADIENTS = sized((1, 100, 1000), (1, 8))
TARGETS = {"settle_packed": "<= 1310", "settle_rooted": "<= 110", "voucher": "<= 75"}
"""Of 1000 gradients to 8 workers, and of one redeem for 1000."""


@dataclass(frozen=True)
class Floor:
    """A deployment with one funded job, in which each worker has a reservation and was credited once."""

    ledger: Ledger
    key: PrivateKey
    job: int
    workers: tuple[Address, ...]
    numbers: Iterator[int]
    node: int
    """Anvil's process."""

    @property
    def market(self) -> Address:
        return self.ledger.deployment.contract

    def send(self, call: Call) -> Receipt:
        return require_receipt(execute_call(self.ledger.web3, self.key, call))

    def reserve(self, workers: Sequence[Address], units: int) -> Receipt:
        return self.send(calls.reserve(self.market, self.job, [(worker, Units(units)) for worker in workers]))

    def packed(self, groups: list[PackedGroup]) -> Receipt:
        return self.send(calls.settle_packed(self.market, self.job, next(self.numbers), groups))

    def rooted(self, groups: list[PackedGroup]) -> Receipt:
        return self.send(calls.settle_rooted(self.market, self.job, next(self.numbers), batch_root(groups), groups))

    def redeem(self, worker: Address, cumulative: int) -> Receipt:
        voucher = Voucher(self.job, worker, Units(cumulative))
        signature = sign_digest(self.key, digest_struct(self.ledger.domain(), voucher))
        return self.send(calls.redeem(self.market, voucher, signature))


@contextmanager
def floor(workers: int) -> Iterator[Floor]:
    chain = LocalChain.start(None)
    try:
        web3 = chain.connect()
        ledger = Ledger(web3, deploy_market(web3, development_key()))
        key = PrivateKey(os.urandom(32))
        owner, known = address_of(key), ledger.deployment
        fund_gas(web3, owner, 10**20)
        deposit, unit = Units(10**13), Amount(10**9)
        require_receipt(
            execute_call(web3, development_key(), calls.mint(known.token, owner, Amount(2 * deposit * unit)))
        )
        require_receipt(execute_call(web3, key, calls.approve(known.token, known.contract, Amount(2 * deposit * unit))))
        expiry = ledger.block().time + DAY
        terms = OpenJob(deposit, unit, expiry, expiry + DAY, owner, Hash(os.urandom(32)))
        (opened,) = events.opened(
            ledger, require_receipt(execute_call(web3, key, calls.open_job(known.contract, terms)))
        )
        named = tuple(address_of(PrivateKey(os.urandom(32))) for _ in range(workers))
        made = Floor(ledger, key, opened.job, named, count(), chain.pid)
        made.reserve(named, 10**11)
        made.packed(batch(named, workers))
        for worker in named[: len(GRADIENTS)]:
            made.redeem(worker, PRICE)
        yield made
    finally:
        chain.stop()


def batch(workers: Sequence[Address], gradients: int) -> list[PackedGroup]:
    """Shares that differ by one at most; random digests, since zeros are cheaper calldata."""
    shares = [gradients // len(workers) + (at < gradients % len(workers)) for at in range(len(workers))]
    return [
        PackedGroup(worker, PRICE, tuple(Hash(os.urandom(32)) for _ in range(share)))
        for worker, share in zip(workers, shares, strict=True)
        if share
    ]


def measure() -> Iterator[Figure]:
    with floor(max(WORKERS)) as here:
        token = here.ledger.deployment.token
        here.send(calls.transfer(token, here.workers[0], Amount(1)))
        transfer = here.send(calls.transfer(token, here.workers[0], Amount(1))).gas
        yield Figure("gas.transfer", transfer, "gas")
        for worker, gradients in zip(here.workers, GRADIENTS, strict=False):
            spent = here.redeem(worker, (1 + gradients) * PRICE).gas
            yield _figure("voucher", gradients, "", spent, transfer, gradients == max(GRADIENTS))
        yield from _batches(here, transfer)
        for workers in WORKERS:
            each = here.reserve(here.workers[:workers], 1).gas / workers
            yield Figure(f"gas.reserve.{workers}", each, "gas/worker", "a token transfer each", each / transfer)


def _batches(here: Floor, transfer: int) -> Iterator[Figure]:
    """Fewer gradients than workers have no batch of their own: it would be one to fewer workers."""
    for workers in WORKERS:
        for gradients in (each for each in GRADIENTS if each >= workers):
            groups = batch(here.workers[:workers], gradients)
            aimed = (gradients, workers) == (1000, 8)
            for kind, receipt in (("settle_packed", here.packed(groups)), ("settle_rooted", here.rooted(groups))):
                yield _figure(kind, gradients, f"x{workers}", receipt.gas, transfer, aimed)


def _figure(kind: str, gradients: int, workers: str, spent: int, transfer: int, aimed: bool) -> Figure:
    each = spent / gradients
    target = TARGETS[kind] if aimed else ""
    name = f"gas.{kind}.{gradients}{workers}"
    return Figure(name, each, "gas/gradient", "a token transfer each", each / transfer, target)
