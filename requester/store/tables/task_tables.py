"""What is computed: tasks, their waves and replicas, and the workers."""

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.requester.store.tables.base import Base


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
    """Of its first replica; once it is judged, of the one that was asked for the payload."""
    patience_until: Mapped[float | None]
    """While it is open: how long it waits for workers that have not tried it."""
    allowed: Mapped[list[Any] | None] = mapped_column(JSON)
    """The thresholds that its sketches were judged by (store.ballots); None where its roots were."""
    root: Mapped[str | None]
    """Of the payload that was asked for last."""
    uploader: Mapped[str | None]
    payload: Mapped[str | None] = mapped_column(index=True)
    """Digest of the accepted payload's blob; its Merkle root is `root`."""
    payload_bytes: Mapped[int | None]
    used: Mapped[bool] = mapped_column(default=False)
    plan: Mapped[dict[str, Any]]
    """How it is checked: market.rules.replication.Plan."""
    reason: Mapped[str] = mapped_column(default="")
    failures: Mapped[int] = mapped_column(default=0)
    """Attempts before this one that gave no verdict though everybody answered, since the job was resumed last."""
    created_at: Mapped[float]
    ended_at: Mapped[float | None]

    __table_args__ = (
        UniqueConstraint("job_id", "round", "index", "attempt"),
        Index("tasks_by_state", "state", "due_at"),
        Index("tasks_in_vain", "state", "patience_until"),
        Index("tasks_of_job", "job_id", "state", "wave", "round", "index"),
        Index("tasks_by_root", "job_id", "root"),
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
    determinism_class: Mapped[str] = mapped_column(default="")
    """Of its worker when it was leased."""
    sealed: Mapped[bytes | None]
    signature: Mapped[bytes | None]
    committed_at: Mapped[float | None]
    salt: Mapped[bytes | None]
    root: Mapped[str | None]
    sketch: Mapped[bytes | None] = mapped_column(deferred=True)
    """float32[tensors, 64] in the layout's order, little-endian; where the job's verifier compares sketches."""
    sketch_signature: Mapped[bytes | None]
    compute_seconds: Mapped[float | None]
    outcome: Mapped[int | None]
    verdict_root: Mapped[str | None]
    """What its verdict is signed over: its own root, or one that the quorum has."""
    verdict_signature: Mapped[bytes | None]
    reason: Mapped[str] = mapped_column(default="")
    fault: Mapped[dict[str, Any] | None]
    """What its worker says kept it from computing: market.rules.faults."""
    heard: Mapped[bool] = mapped_column(default=False)
    """The worker said that it knows how this replica ended."""

    __table_args__ = (
        UniqueConstraint("task_id", "worker"),
        Index("replicas_of_worker", "worker", "heard"),
        Index("replicas_unheard", "worker", postgresql_where=text("heard IS false"), sqlite_where=text("heard IS 0")),
        Index("replicas_by_state", "state", "lease_until"),
        Index("replicas_of_job", "job_id", "state"),
        Index("replicas_listed", "job_id", "id"),
        Index("replicas_in_job_of_worker", "job_id", "worker", "state"),
    )


class Worker(Base):
    __tablename__ = "workers"

    address: Mapped[str] = mapped_column(primary_key=True)
    payout: Mapped[str]
    operator: Mapped[str]
    """Its payout address where that one's key consented, else its own (market.rules.operators)."""
    network: Mapped[str | None]
    determinism_class: Mapped[str] = mapped_column(default="")
    capacity: Mapped[int] = mapped_column(default=0)
    """Further leases it asks for now; each lease takes one."""
    asking_until: Mapped[float] = mapped_column(default=0.0)
    jobs: Mapped[list[Any]] = mapped_column(JSON, default=list)
    """It works for these jobs only; for any where none is named."""
    least_price: Mapped[int] = mapped_column(default=0)
    least_prices: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Of single jobs, where it wants more there."""
    seen_at: Mapped[float]
    joined_at: Mapped[float]
    fence: Mapped[int] = mapped_column(default=0)
    accepted_at: Mapped[float | None]
    """When work of its own was accepted for the first time; a newcomer's never was (market.rules.newcomers)."""
    stalls: Mapped[int] = mapped_column(default=0)
    """Places that it left unanswered in a row; an accepted gradient halves them."""
    stalled_at: Mapped[float | None]
    rests_until: Mapped[float] = mapped_column(default=0.0)
    """It is drawn for nothing before."""

    __table_args__ = (Index("workers_asking", "asking_until"), Index("workers_seen", "seen_at"))
