"""Reads every move of one job's money on-chain from the contract's events, in the chain's order."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from eth_utils.crypto import keccak
from hexbytes import HexBytes
from web3.types import FilterParams

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
    names = {keccak(text=ledger.event_contract.events[name]().signature): name for name in KINDS}
    of_job: FilterParams = {
        "address": ledger.market.address,
        "topics": [[HexBytes(topic) for topic in names], HexBytes(job.to_bytes(32, "big"))],
    }
    start = ledger.deployment.block if first is None else first
    reserved, moves = dict[Address, int](), list[LedgerEntry]()
    for log in fetch_logs(ledger.web3, of_job, start, last):
        name = names[bytes(log["topics"][0])]
        args: Any = ledger.event_contract.events[name]().process_log(log)["args"]
        worker = Address(args["worker"]) if "worker" in args else None
        match name:
            case "JobOpened":
                units = int(args["deposited"])
            case "Reserved":
                units = int(args["added"])
            case "Released":
                units = (reserved.get(worker, 0) if worker else 0) - int(args["reserved"])
            case "GradientsAccepted":
                units = int(args["price"]) * (len(args["digests"]) // DIGEST_BYTES)
            case _:
                units = int(args["amount"])
        if worker is not None and "reserved" in args:
            reserved[worker] = args["reserved"]
        tx = HexBytes(log["transactionHash"]).to_0x_hex()
        cause = Cause(batch=args.get("batch"), tx=tx, block=log["blockNumber"])
        if units:
            moves.append(LedgerEntry(KINDS[name], Units(units), worker, cause))
    return moves


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
