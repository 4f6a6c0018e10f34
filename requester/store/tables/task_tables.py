"""Tables of computation: tasks, their waves and replicas, the workers, and the records of their operators."""

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.market.messages import Offer
from gradmarket.market.terms import Address, Digest, Hash, Plan, ReplicaState, TaskState
from requester.store.tables.base import Base


class Task(Base):
    __tablename__ = "tasks"

    id: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    round: Mapped[int]
    index: Mapped[int]
    attempt: Mapped[int]
    state: Mapped[TaskState]
    offer: Mapped[Offer]
    offer_digest: Mapped[Hash] = mapped_column(unique=True)
    offer_signature: Mapped[bytes]
    secret: Mapped[Hash]
    wave: Mapped[int] = mapped_column(default=0)
    wave_size: Mapped[int]
    """Number of workers that the current wave needs."""
    window_opened: Mapped[float | None]
    due_at: Mapped[float | None]
    """The deadline of the current state: for the wave's commitments, its reveals, or the upload."""
    due_most: Mapped[float | None]
    """The latest time to which the deadline of an upload may be put off (rules.stragglers)."""
    determinism_class: Mapped[str | None]
    """The class of its first replica; once it is judged, of the replica that was asked for the payload."""
    patience_until: Mapped[float | None]
    """While it is open: the time until which it waits for workers that have not tried it."""
    allowed: Mapped[list[Any] | None] = mapped_column(JSON)
    """The thresholds by which its sketches were judged (store.ballots); None where roots were compared."""
    root: Mapped[Digest | None]
    """Digest of the payload that was requested last."""
    uploader: Mapped[str | None]
    payload: Mapped[Digest | None] = mapped_column(index=True)
    """The accepted payload's blob: `root`, once its bytes are stored."""
    payload_bytes: Mapped[int | None]
    norm: Mapped[float | None]
    """L2 norm of the accepted gradients; None where no answer is audited."""
    merge_round: Mapped[int] = mapped_column(default=lambda context: int(context.get_current_parameters()["round"]))
    """The round whose merge takes its answer: its own, or a later one where its own was merged without it."""
    used: Mapped[bool] = mapped_column(default=False)
    """Its answer is in that merge."""
    backups: Mapped[int] = mapped_column(default=0, server_default="0")
    """Workers asked beside those of its wave because one of these is late (feature.Lateness)."""
    plan: Mapped[Plan]
    """How the task is checked: market.rules.replication.Plan."""
    reason: Mapped[str] = mapped_column(default="")
    failures: Mapped[int] = mapped_column(default=0)
    """Earlier attempts, since the job was last resumed, that gave no verdict though all workers answered."""
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
    """A closed wave: the statement signed when its secret was opened."""

    __tablename__ = "waves"

    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    secret: Mapped[Hash]
    commitments: Mapped[Hash]
    seed: Mapped[Hash]
    signature: Mapped[bytes]
    closed_at: Mapped[float]


class Replica(Base):
    __tablename__ = "replicas"

    id: Mapped[str] = mapped_column(primary_key=True)
    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"))
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    worker: Mapped[Address] = mapped_column(ForeignKey("workers.address"))
    payout: Mapped[Address]
    operator: Mapped[str]
    network: Mapped[str | None]
    state: Mapped[ReplicaState]
    wave: Mapped[int]
    fence: Mapped[int]
    leased_at: Mapped[float]
    lease_until: Mapped[float]
    expected_at: Mapped[float | None]
    """When its commitment is expected, by measured times (rules.stragglers); set where rounds may leave tasks, and for
    unknown newcomers after others left theirs.
    """
    determinism_class: Mapped[str] = mapped_column(default="")
    """The worker's class when the replica was leased."""
    sealed: Mapped[Hash | None]
    signature: Mapped[bytes | None]
    committed_at: Mapped[float | None]
    salt: Mapped[bytes | None]
    root: Mapped[Digest | None]
    sketch: Mapped[bytes | None] = mapped_column(deferred=True)
    """float32[tensors, 64] in the layout's order, little-endian; set where the job's verifier compares sketches."""
    sketch_signature: Mapped[bytes | None]
    compute_seconds: Mapped[float | None]
    outcome: Mapped[int | None]
    verdict_root: Mapped[Digest | None]
    """The root that its verdict is signed over: its own, or the quorum's."""
    verdict_signature: Mapped[bytes | None]
    reason: Mapped[str] = mapped_column(default="")
    fault: Mapped[dict[str, Any] | None]
    """The fault that kept its worker from computing, as the worker reports it: market.rules.faults."""
    heard: Mapped[bool] = mapped_column(default=False)
    """The worker has confirmed that it knows how this replica ended."""

    __table_args__ = (
        Index("replicas_of_task", "task_id", "worker"),
        Index(
            "replicas_answered",
            "task_id",
            "worker",
            unique=True,
            postgresql_where=text("sealed IS NOT NULL"),
            sqlite_where=text("sealed IS NOT NULL"),
        ),
        Index("replicas_of_worker", "worker", "heard"),
        Index("replicas_unheard", "worker", postgresql_where=text("heard IS false"), sqlite_where=text("heard IS 0")),
        Index("replicas_by_state", "state", "lease_until"),
        Index("replicas_of_job", "job_id", "state"),
        Index("replicas_listed", "job_id", "id"),
        Index("replicas_in_job_of_worker", "job_id", "worker", "state"),
    )


class Worker(Base):
    __tablename__ = "workers"

    address: Mapped[Address] = mapped_column(primary_key=True)
    payout: Mapped[Address]
    operator: Mapped[str]
    """Its payout address where that address's key consented, else its own address (market.rules.assignment)."""
    network: Mapped[str | None]
    determinism_class: Mapped[str] = mapped_column(default="")
    memory: Mapped[int] = mapped_column(default=0, server_default="0")
    """Bytes that a step may take on its device, by the worker's estimate; 0 where it states none."""
    capacity: Mapped[int] = mapped_column(default=0)
    """The number of further leases it asks for now; each lease takes one."""
    asking_until: Mapped[float] = mapped_column(default=0.0)
    jobs: Mapped[list[Any]] = mapped_column(JSON, default=list)
    """The jobs it works for; if empty, it works for any."""
    least_price: Mapped[int] = mapped_column(default=0)
    least_prices: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Minimum prices of single jobs, where it wants more there than `least_price`."""
    seen_at: Mapped[float]
    joined_at: Mapped[float]
    fence: Mapped[int] = mapped_column(default=0)
    accepted_at: Mapped[float | None]
    """When its work was accepted for the first time; None for a newcomer (market.rules.newcomers)."""

    __table_args__ = (Index("workers_asking", "asking_until"), Index("workers_seen", "seen_at"))


class Strike(Base):
    """Answers that an operator owed in a job and did not give, weighed by market.rules.strikes."""

    __tablename__ = "strikes"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    operator: Mapped[str] = mapped_column(primary_key=True)
    weight: Mapped[float]
    withheld: Mapped[float]
    at: Mapped[float]
    """The time at which the strikes had these weights."""
    until: Mapped[float]
    """The operator gets no work of the job before this time."""
    withheld_until: Mapped[float]
    """The same by withheld answers alone; where it holds in several jobs at once, the operator gets no work of any."""

    __table_args__ = (Index("strikes_of_operator", "operator"),)


class Reputation(Base):
    """An operator's or a wallet's record in one determinism class, by market.features.reputation."""

    __tablename__ = "reputations"

    operator: Mapped[str] = mapped_column(primary_key=True)
    """The address that owns the record: only the holder of its key has the record."""
    determinism_class: Mapped[str] = mapped_column(primary_key=True)
    evidence: Mapped[float]
    paid: Mapped[float] = mapped_column(default=0.0, server_default="0")
    """The pay of the evidence's answers, in the token's smallest units, of the same weight."""
    computed: Mapped[float] = mapped_column(default=0.0, server_default="0")
    """The same of their operations."""
    payers: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """The share of each requester's token in these three; None before any was recorded."""
    at: Mapped[float]
    passed: Mapped[int] = mapped_column(default=0)
    failed: Mapped[int] = mapped_column(default=0)
    failed_at: Mapped[float | None]
    """When an audit of its work last failed, in any class, or of the work of an operator that it has left since."""
