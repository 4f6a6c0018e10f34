"""Heads of a job's log on-chain: a batch carries one as a group of price 0 of an address that belongs to nobody.

So it costs no transaction and no storage write: its root and size are in an event, and under the batch's stored root.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from contracts import events
from contracts.ledger import Ledger
from contracts.packing import PackedGroup
from gradmarket.market.messages import LogHead
from gradmarket.market.terms import Address, Hash, Units

LOG: Final = Address(to_checksum_address(keccak(text="gradmarket: head of a job's log")[-20:]))
"""Address that the group names in a worker's place: the contract credits it nothing."""


def build_head_group(head: LogHead) -> PackedGroup:
    return PackedGroup(LOG, Units(0), (head.root, Hash(head.size.to_bytes(32, "big"))))


def parse_head(job: int, group: PackedGroup) -> LogHead | None:
    """Returns the head that a group carries; None where it carries none."""
    if group.worker != LOG or group.price or len(group.digests) != 2:
        return None
    root, size = group.digests
    return LogHead(job, int.from_bytes(size, "big"), root)


def list_payments(groups: Iterable[PackedGroup]) -> list[PackedGroup]:
    """Returns the groups but for a head."""
    return [group for group in groups if group.worker != LOG]


def fetch_heads(ledger: Ledger, job: int) -> dict[int, LogHead]:
    """Returns the heads of the job's log by their batches. Raises ChainError."""
    groups: Sequence[tuple[int, PackedGroup]] = events.all_settled_groups(ledger, job, LOG)
    found = ((number, parse_head(job, group)) for number, group in groups)
    return {number: head for number, head in found if head is not None}


def fetch_head_times(ledger: Ledger, job: int) -> dict[int, int]:
    """Returns when each batch that carries a head was settled, in Unix time. Raises ChainError."""
    return events.fetch_group_times(ledger, job, LOG)
