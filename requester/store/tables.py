"""The tables, in the order data flows: job -> round -> task -> replica -> earned -> batch, and who takes part.

Money is in the job's units (signed 64-bit), times are Unix seconds, hashes 32 raw bytes, digests `blake3:<hex>`.
A row's `state` moves only by the tables of market.rules.lifecycle, by compare-and-set (store.transitions).
"""

from typing import Any

from sqlalchemy import JSON, BigInteger, Float, ForeignKey, Index, Integer, LargeBinary, String, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

BigKey = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself only where the key is an INTEGER."""


class Base(DeclarativeBase):
    type_annotation_map = {int: BigInteger, float: Float(53), bytes: LargeBinary, dict[str, Any]: JSON, str: String}


class Job(Base):
    __tablename__ = "jobs"

    id: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(index=True)
    reason: Mapped[str] = mapped_column(default="")
    spec: Mapped[dict[str, Any]]
    publication: Mapped[dict[str, Any] | None]
    spec_digest: Mapped[str | None]
    facts: Mapped[dict[str, Any] | None]
    """What the runner said of the document: layout, rows' cost, integer buffers (stages.publish)."""
    token: Mapped[str]
    """The API token's name: who posted it."""
    secret: Mapped[bytes]
    """Every task's wave secrets come from it; never shown."""
    chain_job: Mapped[int | None] = mapped_column(unique=True)
    unit: Mapped[str]
    """Smallest token units in one job unit, as a decimal string."""
    price: Mapped[int]
    budget: Mapped[int]
    deposited: Mapped[int] = mapped_column(default=0)
    refunded: Mapped[int] = mapped_column(default=0)
    expiry: Mapped[int | None]
    claim_until: Mapped[int | None]
    determinism_class: Mapped[str | None]
    created_at: Mapped[float]
    ended_at: Mapped[float | None]
    compute_seconds: Mapped[float] = mapped_column(default=0.0)


class Round(Base):
    __tablename__ = "rounds"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str]
    parameters: Mapped[str]
    """Digest of the parameters that the round's tasks start from."""
    optimizer_state: Mapped[str]
    updated: Mapped[str | None]
    """Digest of the parameters that its merge gave."""
    loss: Mapped[float | None]
    metrics: Mapped[dict[str, Any] | None]
    """Of the updated parameters on the held-out rows."""
    opened_at: Mapped[float]
    closed_at: Mapped[float | None]

    __table_args__ = (Index("rounds_by_state", "state", "job_id"),)


class Task(Base):
    __tablename__ = "tasks"

    id: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    round: Mapped[int]
    index: Mapped[int]
    attempt: Mapped[int]
    state: Mapped[str]
    offer: Mapped[dict[str, Any]]
    offer_digest: Mapped[bytes] = mapped_column(unique=True)
    offer_signature: Mapped[bytes]
    secret: Mapped[bytes]
    wave: Mapped[int] = mapped_column(default=0)
    wave_size: Mapped[int]
    """Workers that the current wave wants."""
    window_opened: Mapped[float | None]
    due_at: Mapped[float | None]
    """When the state's deadline ends: the wave's commitments, its reveals, or the upload."""
    determinism_class: Mapped[str | None]
    """Of its first replica: the bits of one attempt are compared within one class."""
    patience_until: Mapped[float | None]
    """While it is open: how long it waits for workers that have not tried it."""
    root: Mapped[str | None]
    uploader: Mapped[str | None]
    payload: Mapped[str | None] = mapped_column(index=True)
    """Digest of the accepted payload's blob; its Merkle root is `root`."""
    payload_bytes: Mapped[int | None]
    used: Mapped[bool] = mapped_column(default=False)
    reason: Mapped[str] = mapped_column(default="")
    created_at: Mapped[float]
    ended_at: Mapped[float | None]

    __table_args__ = (
        UniqueConstraint("job_id", "round", "index", "attempt"),
        Index("tasks_by_state", "state", "due_at"),
        Index("tasks_of_job", "job_id", "state"),
    )


class Wave(Base):
    """A closed wave: what was signed when its secret opened."""

    __tablename__ = "waves"

    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    secret: Mapped[bytes]
    commitments: Mapped[bytes]
    seed: Mapped[bytes]
    signature: Mapped[bytes]
    closed_at: Mapped[float]


class Replica(Base):
    __tablename__ = "replicas"

    id: Mapped[str] = mapped_column(primary_key=True)
    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"))
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    worker: Mapped[str] = mapped_column(ForeignKey("workers.address"))
    payout: Mapped[str]
    operator: Mapped[str]
    network: Mapped[str | None]
    state: Mapped[str]
    wave: Mapped[int]
    fence: Mapped[int]
    leased_at: Mapped[float]
    lease_until: Mapped[float]
    sealed: Mapped[bytes | None]
    signature: Mapped[bytes | None]
    committed_at: Mapped[float | None]
    salt: Mapped[bytes | None]
    root: Mapped[str | None]
    compute_seconds: Mapped[float | None]
    outcome: Mapped[int | None]
    verdict_signature: Mapped[bytes | None]
    reason: Mapped[str] = mapped_column(default="")
    heard: Mapped[bool] = mapped_column(default=False)
    """The worker said that it knows how this replica ended."""

    __table_args__ = (
        UniqueConstraint("task_id", "worker"),
        Index("replicas_of_worker", "worker", "heard"),
        Index("replicas_by_state", "state", "lease_until"),
        Index("replicas_of_job", "job_id", "state"),
    )


class Worker(Base):
    __tablename__ = "workers"

    address: Mapped[str] = mapped_column(primary_key=True)
    payout: Mapped[str]
    operator: Mapped[str]
    network: Mapped[str | None]
    determinism_class: Mapped[str] = mapped_column(default="")
    capacity: Mapped[int] = mapped_column(default=0)
    """Further leases it asks for now; each lease takes one."""
    asking_until: Mapped[float] = mapped_column(default=0.0)
    jobs: Mapped[list[Any]] = mapped_column(JSON, default=list)
    """It works for these jobs only; for any where none is named."""
    least_price: Mapped[int] = mapped_column(default=0)
    seen_at: Mapped[float]
    joined_at: Mapped[float]
    strikes: Mapped[int] = mapped_column(default=0)
    fence: Mapped[int] = mapped_column(default=0)

    __table_args__ = (Index("workers_asking", "asking_until"),)


class Account(Base):
    """One worker's money in one job; `reserved` and what is on-chain as last seen there."""

    __tablename__ = "accounts"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    worker: Mapped[str] = mapped_column(ForeignKey("workers.address"), primary_key=True)
    earned: Mapped[int] = mapped_column(default=0)
    """The sum of its EARNED rows, kept in the same transaction."""
    voucher_signature: Mapped[bytes | None]
    """Signs `earned` as cumulative."""
    reserved: Mapped[int] = mapped_column(default=0)
    settled: Mapped[int] = mapped_column(default=0)
    withdrawn: Mapped[int] = mapped_column(default=0)
    leaving: Mapped[bool] = mapped_column(default=False)
    """It said it leaves: nothing more is reserved for it."""


class Earned(Base):
    """Who earned what: written in the transaction that accepts the task, once for every agreeing replica."""

    __tablename__ = "earned"

    id: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"))
    replica_id: Mapped[str] = mapped_column(ForeignKey("replicas.id"))
    worker: Mapped[str]
    units: Mapped[int]
    digest: Mapped[bytes]
    """The 32 bytes that settlement puts on-chain: the accepted payload's root."""
    batch_id: Mapped[int | None] = mapped_column(ForeignKey("batches.id"))
    at: Mapped[float]

    __table_args__ = (
        UniqueConstraint("job_id", "task_id", "replica_id"),
        Index("earned_unsettled", "job_id", "batch_id"),
    )


class Batch(Base):
    """EARNED rows on their way to the contract; `number` is the contract's batch number for the job."""

    __tablename__ = "batches"

    id: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    number: Mapped[int]
    state: Mapped[str]
    gradients: Mapped[int]
    units: Mapped[int]
    transaction_id: Mapped[int | None] = mapped_column(ForeignKey("transactions.id"))
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
    """open, reserve, settle, withdraw, …: for people."""
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))
    to: Mapped[str]
    data: Mapped[bytes]
    state: Mapped[str]
    """prepared, sent, mined, reverted."""
    raw: Mapped[bytes | None]
    hash: Mapped[str | None]
    block: Mapped[int | None]
    gas: Mapped[int | None]
    error: Mapped[str] = mapped_column(default="")
    created_at: Mapped[float]
    sent_at: Mapped[float | None]

    __table_args__ = (UniqueConstraint("sender", "nonce"), Index("transactions_by_state", "state"))


class Duty(Base):
    """A lease on a duty that one process at a time may have, such as sending transactions."""

    __tablename__ = "duties"

    name: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    until: Mapped[float]


class Nonce(Base):
    """A sign-in nonce (EIP-4361), good once."""

    __tablename__ = "nonces"

    value: Mapped[str] = mapped_column(primary_key=True)
    until: Mapped[float]


class Token(Base):
    """A bearer token by its hash: a worker's session, or a requester's API token."""

    __tablename__ = "tokens"

    hash: Mapped[bytes] = mapped_column(primary_key=True)
    role: Mapped[str]
    subject: Mapped[str]
    until: Mapped[float | None]


class Idempotency(Base):
    """What was answered to an Idempotency-Key, so that a repeated request is answered alike."""

    __tablename__ = "idempotency"

    subject: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    request: Mapped[bytes]
    status: Mapped[int]
    body: Mapped[dict[str, Any]]
    location: Mapped[str | None]
    at: Mapped[float]


class Event(Base):
    __tablename__ = "events"

    id: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    kind: Mapped[str]
    body: Mapped[dict[str, Any]]
    at: Mapped[float]

    __table_args__ = (Index("events_of_job", "job_id", "id"),)
