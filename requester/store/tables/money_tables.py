"""Tables of money: accounts, EARNED rows, batches, and the transactions that settle them."""

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, UniqueConstraint, false
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.market.terms import Address, BatchState, Hash
from requester.store.tables.base import Base, BigKey


class Account(Base):
    """One worker's money and rests in one job.

    `reserved`, `settled`, `withdrawn` and `at_risk` are as last read on-chain.
    """

    __tablename__ = "accounts"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    worker: Mapped[Address] = mapped_column(ForeignKey("workers.address"), primary_key=True)
    earned: Mapped[int] = mapped_column(default=0)
    """The sum of its EARNED rows, less those dropped, updated in the same transaction."""
    waiting: Mapped[int] = mapped_column(default=0, server_default="0")
    """The part of it that waits for a test of its operator: no voucher promises it yet."""
    voucher_signature: Mapped[bytes | None]
    """Signature of the voucher over `promised`, its cumulative amount."""
    reserved: Mapped[int] = mapped_column(default=0)
    reserved_at: Mapped[float | None]
    """When a reservation for it was last posted; None where none was, or by an earlier version."""
    settled: Mapped[int] = mapped_column(default=0)
    withdrawn: Mapped[int] = mapped_column(default=0)
    at_risk: Mapped[int] = mapped_column(default=0)
    """The part of its stake that the job can slash and no accusation claims yet."""
    leaving: Mapped[bool] = mapped_column(default=False)
    """The worker announced that it leaves: nothing more is reserved for it."""
    stalls: Mapped[int] = mapped_column(default=0)
    """Places of the job in a row that it left unanswered; a gradient that the job accepts halves the number."""
    stalled_at: Mapped[float | None]
    rests_until: Mapped[float] = mapped_column(default=0.0)
    """Until this time the job does not draw it (market.rules.newcomers)."""

    __table_args__ = (Index("accounts_of_worker", "worker"),)

    @property
    def promised(self) -> int:
        """The amount of its voucher, in units."""
        return self.earned - self.waiting


class Earned(Base):
    """One earning of a worker; written in the transaction that accepts the task, once for every agreeing replica.

    Where answers are paid by worth too, a second row follows in the transaction that closes the round.
    """

    __tablename__ = "earned"

    id: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"))
    replica_id: Mapped[str] = mapped_column(ForeignKey("replicas.id"))
    worker: Mapped[Address]
    units: Mapped[int]
    digest: Mapped[Hash]
    """The 32 bytes that settlement puts on-chain: the accepted payload's root."""
    batch_id: Mapped[int | None] = mapped_column(ForeignKey("batches.id"))
    revoked: Mapped[bool] = mapped_column(default=False)
    """An audit found it wrong before it was in a batch: the voucher still promises it, and no batch will record it."""
    waits: Mapped[bool] = mapped_column(default=False, server_default=false())
    """A test of its operator has to clear it first; dropped where it is revoked too."""
    at: Mapped[float]
    by_worth: Mapped[bool] = mapped_column(default=False)
    """Whether it pays the answer's measured worth, over its price (private.shapley)."""

    __table_args__ = (
        UniqueConstraint("job_id", "task_id", "replica_id", "by_worth", name="earned_once"),
        Index("earned_unsettled", "job_id", "batch_id"),
        Index("earned_listed", "job_id", "id"),
    )


class Batch(Base):
    """EARNED rows on their way to the contract; `number` is the contract's batch number for the job."""

    __tablename__ = "batches"

    id: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    number: Mapped[int]
    state: Mapped[BatchState]
    gradients: Mapped[int]
    units: Mapped[int]
    transaction_id: Mapped[int | None] = mapped_column(ForeignKey("transactions.id"))
    log_size: Mapped[int | None]
    log_root: Mapped[Hash | None]
    """The head of the job's log that it carries (contracts.log_heads); None where it carries none."""
    created_at: Mapped[float]
    settled_at: Mapped[float | None]

    __table_args__ = (UniqueConstraint("job_id", "number"), Index("batches_by_state", "state"))


class Transaction(Base):
    """A transaction of the service's sender: the row is committed before anything is sent."""

    __tablename__ = "transactions"

    id: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=True)
    sender: Mapped[str]
    nonce: Mapped[int]
    kind: Mapped[str]
    """A TransactionKind."""
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))
    to: Mapped[str]
    data: Mapped[bytes]
    state: Mapped[str]
    """A TransactionState."""
    raw: Mapped[bytes | None]
    hash: Mapped[str | None]
    offer: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default="{}")
    """Gas limit and fees of `raw` (chain.sender); empty where an earlier version signed it."""
    replaced: Mapped[list[Any]] = mapped_column(JSON, default=list, server_default="[]")
    """The hashes of the transactions that it replaced, any of which may be mined."""
    block: Mapped[int | None]
    gas: Mapped[int | None]
    error: Mapped[str] = mapped_column(default="")
    created_at: Mapped[float]
    sent_at: Mapped[float | None]

    __table_args__ = (UniqueConstraint("sender", "nonce"), Index("transactions_by_state", "state"))
