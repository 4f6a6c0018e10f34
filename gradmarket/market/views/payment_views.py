"""Earnings, settlements, stakes, strikes and workers, as the API answers them."""

from enum import StrEnum

from pydantic import ConfigDict, Field

from gradmarket.market.fields import DeferredModel
from gradmarket.market.money import TokenUnit
from gradmarket.market.terms import ReplicaState
from gradmarket.market.views.trust_views import ReputationView


class JobWorkerView(DeferredModel):
    """One worker's standing in one job; amounts in smallest units."""

    address: str
    payout: str
    accepted: int
    rejected: int
    replicas: dict[str, int]
    earned: str
    waiting: str
    reserved: str
    settled: str
    withdrawn: str
    at_risk: str
    """The part of its stake that the job can slash and that no accusation claims yet."""


class SettlementView(DeferredModel):
    batch: int
    state: str
    tx: str | None
    gas: int | None
    block: int | None
    gradients: int
    amount: str


class StakeView(DeferredModel):
    """The part of a worker's stake that one job can slash, by the chain; in the token's smallest unit."""

    job: str
    chain_job: int | None
    at_risk: str


class VestView(DeferredModel):
    """The most of each worker's last pay that a job keeps locked, and the results of its accusations so far.

    Amounts are in the token's smallest unit.
    """

    locked: str
    window_s: int
    """Seconds after the worker's last credit."""
    accused: str
    """In cases without a ruling yet."""
    burnt: str
    failed: int
    """Accusations without a ruling that finds the worker guilty; each burnt the job's bond."""

    def text(self, token: TokenUnit) -> str:
        """Returns the vest in a sentence."""
        amounts = {"accused": self.accused, "burnt": self.burnt}
        came = [f"{name} {token.text(amount)}" for name, amount in amounts.items() if int(amount)]
        came += [f"accusations that failed: {self.failed}"] if self.failed else []
        waits = f"{token.text(self.locked)} of each worker's pay at most, {self.window_s / 3600:.3g} h after its last"
        return "; ".join([f"{waits} credit", *came])


class StrikesView(DeferredModel):
    """Answers that a worker's operator owed in one job and did not give, as they weigh now."""

    job: str
    weight: float
    suspended_until: str | None
    """Until then it gets no work of the job; null if it may get work now."""


class WorkerView(DeferredModel):
    address: str
    payout: str
    operator: str
    """Whose record it has: its payout address if that key consented, else the worker itself."""
    proven: bool
    """Whether its payout address is its operator: by that key's consent, or because it is the worker's own address."""
    determinism_class: str
    seen_at: str | None
    joined_at: str | None
    strikes: list[StrikesView]
    """Its operator's strikes, by job."""
    barred: bool
    """Whether an audit of its work, or of its operator's, failed not long ago, so that it gets no work."""
    copies: int
    """Answers it was paid for that an audit found wrong and another task had too; the copied worker's do not count."""
    reputation: list[ReputationView]
    """Its operator's record, by class."""
    stakes: list[StakeView]
    replicas: dict[str, int]


class ToSignView(DeferredModel):
    """A transaction for a wallet: EIP-1474's fields, without gas, fees and nonce, which are the wallet's to choose."""

    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True)

    purpose: str
    chain_id: int
    owner: str = Field(alias="from")
    to: str
    data: str
    value: str


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


class EntryView(DeferredModel):
    """`amount` from the account `credit` to the account `debit`, and its cause."""

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


class BooksView(DeferredModel):
    """The sum of `accounts` (debits less credits) is zero; `balanced`: they are the contract's figures at the block."""

    balanced: bool
    differences: list[str]
    accounts: dict[str, str]


class LedgerView(DeferredModel):
    """`block` is none while the job is not on-chain. `books` come with the first page, `next` leads to the others."""

    job: str
    chain_job: int | None
    block: int | None
    books: BooksView | None
    items: list[EntryView]
    next: str | None


class VerdictView(DeferredModel):
    task: str
    replica: str
    worker: str
    state: ReplicaState
    outcome: int | None
    reason: str
    signature: str | None
