"""Double entry: whatever happens to a job's money, the books sum to zero and balance; whatever is left out shows."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.features.ledger import (
    FREE,
    REQUESTER,
    AccountFigures,
    Cause,
    JobFigures,
    LedgerEntry,
    compare_books,
    compute_balances,
)
from gradmarket.market.terms import Address, Units
from gradmarket.market.views.payment_views import EntryKind

WORKERS = tuple(Address(f"0x{number:040x}") for number in range(1, 4))
ONCHAIN = frozenset(EntryKind) - {EntryKind.EARNED, EntryKind.VOUCHERED}


@dataclass
class Contract:
    """The contract's figures by its own rules, and the moves that it made on the way."""

    deposited: int = 0
    reserved: dict[Address, int] = field(default_factory=lambda: dict.fromkeys(WORKERS, 0))
    settled: dict[Address, int] = field(default_factory=lambda: dict.fromkeys(WORKERS, 0))
    vouchered: dict[Address, int] = field(default_factory=lambda: dict.fromkeys(WORKERS, 0))
    withdrawn: dict[Address, int] = field(default_factory=lambda: dict.fromkeys(WORKERS, 0))
    earned: dict[Address, int] = field(default_factory=lambda: dict.fromkeys(WORKERS, 0))
    moves: list[LedgerEntry] = field(default_factory=list)

    def credited(self, who: Address) -> int:
        return min(max(self.settled[who], self.vouchered[who]), self.reserved[who])

    @property
    def free(self) -> int:
        return self.deposited - sum(self.reserved.values())

    def play(self, kind: EntryKind, who: Address, units: int) -> None:
        """The move, with as many of `units` as the contract allows."""
        worker: Address | None = who
        match kind:
            case EntryKind.DEPOSIT:
                self.deposited, worker = self.deposited + units, None
            case EntryKind.RESERVATION:
                units = min(units, self.free)
                self.reserved[who] += units
            case EntryKind.EARNED:
                units = min(units, self.reserved[who] - self.earned[who])
                self.earned[who] += units
            case EntryKind.SETTLED:
                units = min(units, self.earned[who] - self.settled[who])
                self.settled[who] += units
            case EntryKind.VOUCHERED:
                units = min(units, self.earned[who] - self.vouchered[who])
                self.vouchered[who] += units
            case EntryKind.REDEEMED | EntryKind.BURNT:
                left = self.credited(who) - self.withdrawn[who]
                units = left if kind == EntryKind.REDEEMED else min(units, left)
                self.withdrawn[who] += units
            case EntryKind.RELEASED:
                units = min(units, self.reserved[who] - max(self.earned[who], self.credited(who)))
                self.reserved[who] -= units
            case EntryKind.REFUND:
                units, worker = min(units, self.free), None
                self.deposited -= units
            case EntryKind.LAPSED:
                return
        self.moves.append(LedgerEntry(kind, Units(units), worker, Cause()))

    def end(self) -> None:
        """After claimUntil the requester takes all that nobody was credited with."""
        kept = {who: self.credited(who) for who in WORKERS}
        for who in WORKERS:
            self.moves.append(LedgerEntry(EntryKind.LAPSED, Units(self.reserved[who] - kept[who]), who, Cause()))
        left = self.deposited - sum(kept.values())
        self.moves.append(LedgerEntry(EntryKind.REFUND, Units(left), None, Cause()))
        self.deposited, self.reserved = self.deposited - left, kept

    def differences(self, moves: list[LedgerEntry] | None = None) -> list[str]:
        job = JobFigures(Units(self.deposited), Units(sum(self.reserved.values())))
        accounts = {
            who: AccountFigures(
                Units(self.reserved[who] - self.withdrawn[who]), Units(self.settled[who]), Units(self.withdrawn[who])
            )
            for who in WORKERS
        }
        return compare_books(self.moves if moves is None else moves, job, accounts)


@st.composite
def histories(draw: st.DrawFn) -> Contract:
    contract = Contract()
    steps = st.tuples(st.sampled_from(list(EntryKind)), st.sampled_from(WORKERS), st.integers(0, 1000))
    for kind, who, units in draw(st.lists(steps, max_size=40)):
        contract.play(kind, who, units)
    if draw(st.booleans()):
        contract.end()
    return contract


@given(histories())
def test_any_history_sums_to_zero_and_balances(contract: Contract) -> None:
    sums = compute_balances(contract.moves)
    assert sum(sums.values()) == 0
    assert contract.differences() == []
    assert sums.get(FREE, 0) == contract.free
    assert -sums.get(REQUESTER, 0) == contract.deposited
    for who in WORKERS:
        assert -sums.get(f"owed:{who}", 0) == contract.earned[who] - contract.withdrawn[who]


@given(histories(), st.data())
def test_a_move_that_is_left_out_doubled_or_changed_shows(contract: Contract, data: st.DataObject) -> None:
    told = [n for n, move in enumerate(contract.moves) if move.units and move.kind in ONCHAIN]
    if not told:
        return
    number = data.draw(st.sampled_from(told))
    move, before, after = contract.moves[number], contract.moves[:number], contract.moves[number + 1 :]
    for instead in ([], [move, move], [replace(move, units=Units(move.units + 1))]):
        assert contract.differences([*before, *instead, *after])


def test_pay_beyond_what_was_earned_is_named() -> None:
    contract = Contract()
    for kind in (EntryKind.DEPOSIT, EntryKind.RESERVATION, EntryKind.EARNED, EntryKind.VOUCHERED, EntryKind.REDEEMED):
        contract.play(kind, WORKERS[0], 10)
    assert contract.differences() == []
    unearned = [move for move in contract.moves if move.kind is not EntryKind.EARNED]
    assert contract.differences(unearned) == [
        f"vouchered for {WORKERS[0]}: 10, of 0 earned",
        f"redeemed for {WORKERS[0]}: 10, of 0 earned",
    ]


@pytest.mark.parametrize("kind", EntryKind)
def test_every_kind_has_two_accounts(kind: EntryKind) -> None:
    move = LedgerEntry(kind, Units(1), WORKERS[0], Cause())
    assert move.debit != move.credit
