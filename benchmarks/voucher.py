"""How many vouchers the service's key signs in a second of one thread's CPU."""

import time
from collections.abc import Iterator

from eth_keys.datatypes import PrivateKey

from benchmarks.figure import Figure
from gradmarket.market.messages import Voucher
from gradmarket.market.signing import Domain, address_of, digest, sign
from gradmarket.market.terms import Address, Hash, Units

PREFIX = "voucher."
VOUCHERS = 5_000
KEY = PrivateKey(bytes(range(1, 33)))


def measure() -> Iterator[Figure]:
    domain = Domain(31337, Address("0x" + "11" * 20), Hash(bytes(32)))
    worker = address_of(KEY)
    sign(KEY, digest(domain, Voucher(1, worker, Units(0))))
    began = time.thread_time()
    for cumulative in range(VOUCHERS):
        sign(KEY, digest(domain, Voucher(1, worker, Units(cumulative))))
    yield Figure(
        "voucher.signed_per_s", VOUCHERS / (time.thread_time() - began), "vouchers/s", note="digest and signature"
    )
