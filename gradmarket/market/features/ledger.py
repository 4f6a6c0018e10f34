"""A job's money in double entry: every move is a debit and a credit of equal units, so all accounts sum to zero.

    move          debit         credit        what happened
    deposit       free          requester     tokens came into the contract
    reservation   reserved:W    free          set aside for worker W alone
    released      free          reserved:W    W gave it back
    lapsed        free          reserved:W    the time to claim is over: the part not credited to W
    refund        requester     free          the requester took it out
    redeemed      owed:W        reserved:W    tokens went to W
    burnt         owed:W        reserved:W    W's locked pay, which its validators took for a proven fault
    earned        gradients     owed:W        W's answer was accepted
    vouchered     promised      vouchered:W   signed over to W; memorandum
    settled       promised      settled:W     credited to W on-chain; memorandum

Vouchers and batches both record what was earned, and move no tokens. So they have accounts of their own (memorandum
accounts), whose counter-account `promised` only records that something was promised. All amounts are in units.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gradmarket.market.terms import Address, Units
from gradmarket.market.views.payment_views import EntryKind

REQUESTER: Final = "requester"
FREE: Final = "free"
GRADIENTS: Final = "gradients"
PROMISED: Final = "promised"


ACCOUNTS: Final = {
    EntryKind.DEPOSIT: (FREE, REQUESTER),
    EntryKind.RESERVATION: ("reserved:", FREE),
    EntryKind.RELEASED: (FREE, "reserved:"),
    EntryKind.LAPSED: (FREE, "reserved:"),
    EntryKind.REFUND: (REQUESTER, FREE),
    EntryKind.REDEEMED: ("owed:", "reserved:"),
    EntryKind.BURNT: ("owed:", "reserved:"),
    EntryKind.EARNED: (GRADIENTS, "owed:"),
    EntryKind.VOUCHERED: (PROMISED, "vouchered:"),
    EntryKind.SETTLED: (PROMISED, "settled:"),
}
"""The debit and the credit account of each kind; a name that ends in a colon has one account for each worker."""


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of a move, as far as it applies: a gradient off-chain, a transaction on-chain."""

    task: str | None = None
    replica: str | None = None
    batch: int | None = None
    tx: str | None = None
    block: int | None = None


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One move of a job's money. `worker` is None for a move that concerns the requester alone."""

    kind: EntryKind
    units: Units
    worker: Address | None
    cause: Cause

    @property
    def debit(self) -> str:
        return _name_account(ACCOUNTS[self.kind][0], self.worker)

    @property
    def credit(self) -> str:
        return _name_account(ACCOUNTS[self.kind][1], self.worker)


@dataclass(frozen=True, slots=True)
class JobFigures:
    """The contract's figures for a job.

    `deposited`: all deposits less the requester's refunds; `reserved` is a part of it.
    """

    deposited: Units
    reserved: Units


@dataclass(frozen=True, slots=True)
class AccountFigures:
    """The contract's figures for a worker in a job.

    `held`: the amount that the contract still keeps for the worker: the reservation or, after a refund at the end of
    all claims, the credited amount less the withdrawn.
    """

    held: Units
    settled: Units
    withdrawn: Units


def _name_account(name: str, worker: Address | None) -> str:
    return f"{name}{worker or ''}" if name.endswith(":") else name


def compute_balances(moves: Iterable[LedgerEntry]) -> dict[str, int]:
    """Returns debits less credits by account; their sum is always zero."""
    balance_of: Counter[str] = Counter()
    for move in moves:
        balance_of[move.debit] += move.units
        balance_of[move.credit] -= move.units
    return dict(sorted(balance_of.items()))


def compare_books(
    moves: Iterable[LedgerEntry], job: JobFigures, accounts: Mapping[Address, AccountFigures]
) -> list[str]:
    """Returns in words where the moves and the contract's figures disagree; empty where they balance.

    It also reports a worker that was paid, or credited by batches or vouchers, more than it earned.
    """
    entries = list(moves)
    balance = Counter(compute_balances(entries))
    sums: Counter[tuple[EntryKind, Address | None]] = Counter()
    for move in entries:
        sums[move.kind, move.worker] += move.units
    problems = [_describe_book_difference("free", balance[FREE], job.deposited - job.reserved)]
    problems.append(_describe_book_difference("deposits less refunds", -balance[REQUESTER], job.deposited))
    workers = sorted({move.worker for move in entries if move.worker is not None} | set(accounts))
    nothing = AccountFigures(Units(0), Units(0), Units(0))
    for worker in workers:
        chain = accounts.get(worker, nothing)
        problems.append(_describe_book_difference(f"held for {worker}", balance[f"reserved:{worker}"], chain.held))
        problems.append(
            _describe_book_difference(f"settled for {worker}", sums[EntryKind.SETTLED, worker], chain.settled)
        )
        problems.append(
            _describe_book_difference(
                f"withdrawn by {worker}",
                sums[EntryKind.REDEEMED, worker] + sums[EntryKind.BURNT, worker],
                chain.withdrawn,
            )
        )
        earned = sums[EntryKind.EARNED, worker]
        problems += [
            f"{kind} for {worker}: {sums[kind, worker]}, of {earned} earned"
            for kind in COUNT_EARNED
            if sums[kind, worker] > earned
        ]
    return [problem for problem in problems if problem]


COUNT_EARNED: Final = (EntryKind.VOUCHERED, EntryKind.SETTLED, EntryKind.REDEEMED)
"""Kinds that record earned units: none may sum to more than was earned."""


def _describe_book_difference(amount: str, books: int, contract: int) -> str:
    return "" if books == contract else f"{amount}: books {books}, contract {contract}"
