"""Packs rows as the contract reads them (contracts/src/libraries/Packed.sol)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gradmarket.market.errors import Refused
from gradmarket.market.terms import Address, Hash, Units


@dataclass(frozen=True, slots=True)
class PackedGroup:
    """One worker's accepted gradients, by their `digests`, each paid `price`."""

    worker: Address
    price: Units
    digests: tuple[Hash, ...]


def group_by_worker(rows: Iterable[tuple[Address, Units, Hash]]) -> list[PackedGroup]:
    """Groups rows (worker, price, digest) by worker and price, in order of first appearance."""
    digests: dict[tuple[Address, Units], list[Hash]] = {}
    for worker, price, digest in rows:
        digests.setdefault((worker, price), []).append(digest)
    return [PackedGroup(worker, price, tuple(hashes)) for (worker, price), hashes in digests.items()]


def pack_groups(groups: Sequence[PackedGroup]) -> bytes:
    """Packs each group as worker (20 bytes) | price (6) | count (2) | digests (32 each), and concatenates them."""
    packed = list[bytes]()
    for each in groups:
        if not each.digests or any(len(digest) != 32 for digest in each.digests):
            raise Refused("a group without digests, or a digest that is not 32 bytes")
        packed += [_pack_worker_address(each.worker), _pack_number("price", each.price, 6)]
        packed += [_pack_number("count", len(each.digests), 2), *each.digests]
    return b"".join(packed)


def pack_reservations(rows: Sequence[tuple[Address, Units]]) -> bytes:
    """Packs each row as worker (20 bytes) | units (8), and concatenates them."""
    return b"".join(_pack_worker_address(worker) + _pack_number("amount", units, 8) for worker, units in rows)


def pack_sums(groups: Sequence[PackedGroup]) -> bytes:
    """Packs each worker once as worker (20 bytes) | sum of its prices (8), the credits of `settleRooted`."""
    sums: dict[Address, int] = {}
    for row in groups:
        sums[row.worker] = sums.get(row.worker, 0) + row.price * len(row.digests)
    return pack_reservations([(worker, Units(units)) for worker, units in sums.items()])


def pack_record(worker: Address, price: Units, digest: Hash) -> bytes:
    """Packs an accepted gradient as worker (20 bytes) | price (6) | digest (32), the leaf of a batch's root."""
    return _pack_worker_address(worker) + _pack_number("price", price, 6) + digest


def _pack_worker_address(address: Address) -> bytes:
    return bytes.fromhex(address.removeprefix("0x"))


def _pack_number(field: str, value: int, size: int) -> bytes:
    try:
        return value.to_bytes(size, "big")
    except OverflowError as error:
        raise Refused(f"{field} {value} does not fit {size} bytes") from error
