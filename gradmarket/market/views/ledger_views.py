"""A job's ledger in double entry, and whether it agrees with the contract, as the API answers them."""

from enum import StrEnum

from pydantic import BaseModel


class EntryKind(StrEnum):
    DEPOSIT = "deposit"
    RESERVATION = "reservation"
    RELEASED = "released"
    LAPSED = "lapsed"
    REFUND = "refund"
    REDEEMED = "redeemed"
    BURNT = "burnt"
    EARNED = "earned"
    VOUCHERED = "vouchered"
    SETTLED = "settled"


class EntryView(BaseModel):
    """`amount` from the account `credit` to the account `debit`, and what brought it about."""

    kind: EntryKind
    debit: str
    credit: str
    amount: str
    worker: str | None
    task: str | None
    replica: str | None
    batch: int | None
    tx: str | None
    block: int | None


class BooksView(BaseModel):
    """The sum of `accounts` (debits less credits) is zero; `balanced`: they are the contract's figures at the block."""

    balanced: bool
    differences: list[str]
    accounts: dict[str, str]


class LedgerView(BaseModel):
    """`block` is none while the job is not on-chain. `books` come with the first page, `next` leads to the others."""

    job: str
    chain_job: int | None
    block: int | None
    books: BooksView | None
    items: list[EntryView]
    next: str | None
