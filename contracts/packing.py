"""The contract's packed rows and the root it stores of a batch (contracts/src/libraries)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from eth_utils.crypto import keccak

from gradmarket.market.errors import Refused
from gradmarket.market.terms import Address, Hash, Units

MAX_COUNT = 2**16 - 1
"""Digests in a group: its count has two bytes."""


@dataclass(frozen=True, slots=True)
class Group:
    """`digests` of one worker's accepted gradients, each paid `price`."""

    worker: Address
    price: Units
    digests: tuple[Hash, ...]


def group(rows: Iterable[tuple[Address, Units, Hash]]) -> list[Group]:
    """Rows worker, price, digest by worker and price, both in order of first appearance."""
    digests: dict[tuple[Address, Units], list[Hash]] = {}
    for worker, price, digest in rows:
        digests.setdefault((worker, price), []).append(digest)
    return [Group(worker, price, tuple(found)) for (worker, price), found in digests.items()]


def pack_groups(groups: Sequence[Group]) -> bytes:
    """worker (20 bytes) | price (6) | count (2) | digests (32 each), a group after the other."""
    return b"".join(_pack(each) for each in groups)


def pack_reservations(rows: Sequence[tuple[Address, Units]]) -> bytes:
    """worker (20 bytes) | units (8), a row after the other."""
    return b"".join(_worker(worker) + _number("amount", units, 8) for worker, units in rows)


def batch_root(groups: Sequence[Group]) -> Hash:
    """The root that `settlePacked` stores: leaves keccak(worker | price | digest), sorted pairs as in OpenZeppelin's
    MerkleProof, an odd last node moves up as it is."""
    level = [keccak(leaf) for leaf in _leaves(groups)]
    if not level:
        raise Refused("an empty batch")
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        above = [keccak(min(pair) + max(pair)) for pair in pairs]
        level = above + level[len(above) * 2 :]
    return Hash(level[0])


def _leaves(groups: Sequence[Group]) -> Iterator[bytes]:
    for each in groups:
        head = _worker(each.worker) + _number("price", each.price, 6)
        yield from (head + digest for digest in each.digests)


def _pack(each: Group) -> bytes:
    if not each.digests or any(len(digest) != 32 for digest in each.digests):
        raise Refused("a group without digests, or a digest that is not 32 bytes")
    head = _worker(each.worker) + _number("price", each.price, 6) + _number("count", len(each.digests), 2)
    return head + b"".join(each.digests)


def _worker(address: Address) -> bytes:
    return bytes.fromhex(address.removeprefix("0x"))


def _number(field: str, value: int, size: int) -> bytes:
    try:
        return value.to_bytes(size, "big")
    except OverflowError as error:
        raise Refused(f"{field} {value} does not fit {size} bytes") from error
