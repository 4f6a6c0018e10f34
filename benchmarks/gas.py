"""Gas for an accepted gradient, on Anvil: a token transfer each, and a packed batch with every digest on-chain."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from eth_keys.datatypes import PrivateKey

from benchmarks.figure import Figure
from gradmarket.contracts import calls, events
from gradmarket.contracts.calls import Call, OpenJob
from gradmarket.contracts.deployment import deploy
from gradmarket.contracts.ledger import Ledger
from gradmarket.contracts.local import DEVELOPMENT_KEYS, LocalChain, fund_gas
from gradmarket.contracts.packing import Group
from gradmarket.contracts.transactions import Receipt, execute, mined
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, Amount, Hash, Units

PREFIX = "gas."
PRICE = Units(10**6)
DAY = 86_400


@dataclass(frozen=True)
class Floor:
    """A deployment with one funded job and `workers` that have reservations in it."""

    ledger: Ledger
    key: PrivateKey
    job: int
    workers: tuple[Address, ...]

    def send(self, call: Call) -> Receipt:
        return mined(execute(self.ledger.web3, self.key, call))

    def settle(self, batch: int, gradients: int) -> Receipt:
        """`gradients` in equal shares; random digests, since zeros are cheaper calldata."""
        share = gradients // len(self.workers)
        groups = [Group(worker, PRICE, tuple(Hash(os.urandom(32)) for _ in range(share))) for worker in self.workers]
        return self.send(calls.settle_packed(self.ledger.deployment.contract, self.job, batch, groups))


@contextmanager
def floor(workers: int) -> Iterator[Floor]:
    chain = LocalChain.start(None)
    try:
        web3 = chain.connect()
        ledger = Ledger(web3, deploy(web3, DEVELOPMENT_KEYS[0]))
        key = PrivateKey(os.urandom(32))
        owner, known = address_of(key), ledger.deployment
        fund_gas(web3, owner, 10**20)
        deposit, unit = Units(10**13), Amount(10**9)
        mined(execute(web3, DEVELOPMENT_KEYS[0], calls.mint(known.token, owner, Amount(2 * deposit * unit))))
        mined(execute(web3, key, calls.approve(known.token, known.contract, Amount(2 * deposit * unit))))
        expiry = ledger.block().time + DAY
        terms = OpenJob(deposit, unit, expiry, expiry + DAY, owner, Hash(os.urandom(32)))
        (opened,) = events.opened(ledger, mined(execute(web3, key, calls.open_job(known.contract, terms))))
        named = tuple(address_of(PrivateKey(os.urandom(32))) for _ in range(workers))
        made = Floor(ledger, key, opened.job, named)
        made.send(calls.reserve(known.contract, opened.job, [(worker, Units(10**11)) for worker in named]))
        yield made
    finally:
        chain.stop()


def measure() -> Iterator[Figure]:
    with floor(8) as here:
        token = here.ledger.deployment.token
        here.send(calls.transfer(token, here.workers[0], Amount(1)))
        transfer = here.send(calls.transfer(token, here.workers[0], Amount(1))).gas
        yield Figure("gas.transfer", transfer, "gas")
        here.settle(0, 8)
        for batch, gradients in enumerate((8, 96, 1000), start=1):
            each = here.settle(batch, gradients).gas / gradients
            target = "<= 1310" if gradients == 1000 else ""
            name = f"gas.settle_packed.{gradients}x8"
            yield Figure(name, each, "gas/gradient", "a token transfer each", each / transfer, target)
