"""Reads every move of one job's money on-chain from the contract's events, in the chain's order."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from eth_utils.crypto import keccak
from hexbytes import HexBytes
from web3.types import FilterParams, LogReceipt

from contracts.events import fetch_logs
from contracts.ledger import Ledger
from contracts.rpc import node_errors
from gradmarket.market.features.ledger import FREE, Cause, LedgerEntry
from gradmarket.market.terms import Address, Units
from gradmarket.market.views.payment_views import EntryKind

KINDS: Final = {
    "JobOpened": EntryKind.DEPOSIT,
    "Deposited": EntryKind.DEPOSIT,
    "Reserved": EntryKind.RESERVATION,
    "Released": EntryKind.RELEASED,
    "GradientsAccepted": EntryKind.SETTLED,
    "Paid": EntryKind.REDEEMED,
    "VestBurnt": EntryKind.BURNT,
    "Refunded": EntryKind.REFUND,
}
DIGEST_BYTES: Final = 32


@node_errors()
def list_moves(ledger: Ledger, job: int, last: int, first: int | None = None) -> list[LedgerEntry]:
    """Returns every move of units in the blocks from `first` (default: the deployment's) to `last`.

    A release's amount is the difference to the earlier reservation, so `first` must not be after the job's opening.
    Money that lapsed when all claims ended has no event of its own: see `insert_lapsed_moves`. Raises ChainUnreachable.
    """
    reserved: dict[Address, int] = {}
    entries = (_build_ledger_entry(ledger, log, reserved) for log in _fetch_job_logs(ledger, job, first, last))
    return [move for move in entries if move.units]


def _build_ledger_entry(ledger: Ledger, log: LogReceipt, reserved: dict[Address, int]) -> LedgerEntry:
    """Returns the entry of one event; updates `reserved`, every worker's reservation."""
    name = _map_topics_to_names(ledger)[bytes(log["topics"][0])]
    args: Any = ledger.event_contract.events[name]().process_log(log)["args"]
    worker = Address(args["worker"]) if "worker" in args else None
    cause = Cause(batch=args.get("batch"), tx=HexBytes(log["transactionHash"]).to_0x_hex(), block=log["blockNumber"])
    units = _compute_moved_units(name, args, reserved.get(worker, 0) if worker else 0)
    if worker is not None and "reserved" in args:
        reserved[worker] = args["reserved"]
    return LedgerEntry(KINDS[name], Units(units), worker, cause)


def _compute_moved_units(name: str, args: Any, reserved: int) -> int:
    match name:
        case "JobOpened":
            return int(args["deposited"])
        case "Reserved":
            return int(args["added"])
        case "Released":
            return reserved - int(args["reserved"])
        case "GradientsAccepted":
            return int(args["price"]) * (len(args["digests"]) // DIGEST_BYTES)
    return int(args["amount"])


def insert_lapsed_moves(entries: list[LedgerEntry], credited: Mapping[Address, Units]) -> list[LedgerEntry]:
    """Returns the moves, with lapsed money inserted before a refund of more than was free.

    `credited`: each worker's credit in the contract.
    """
    free, reserved, whole = 0, Counter[Address](), list[LedgerEntry]()
    for move in entries:
        if move.kind is EntryKind.REFUND and move.units > free:
            over = reserved - Counter(credited)
            whole += [LedgerEntry(EntryKind.LAPSED, Units(units), worker, move.cause) for worker, units in over.items()]
            free, reserved = free + over.total(), reserved - over
        free += _compute_freed_units(move)
        if move.worker is not None:
            reserved[move.worker] -= _compute_freed_units(move)
        whole.append(move)
    return whole


def _compute_freed_units(move: LedgerEntry) -> int:
    return move.units * ((move.debit == FREE) - (move.credit == FREE))


def _fetch_job_logs(ledger: Ledger, job: int, first: int | None, last: int) -> Iterator[LogReceipt]:
    kinds = [HexBytes(topic) for topic in _map_topics_to_names(ledger)]
    start = ledger.deployment.block if first is None else first
    of_job: FilterParams = {"address": ledger.market.address, "topics": [kinds, HexBytes(job.to_bytes(32, "big"))]}
    return fetch_logs(ledger.web3, of_job, start, last)


def _map_topics_to_names(ledger: Ledger) -> dict[bytes, str]:
    """Returns the names of the events by topic."""
    return {keccak(text=ledger.event_contract.events[name]().signature): name for name in KINDS}
