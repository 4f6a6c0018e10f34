"""Who is believed how far: tasks that are run again, what an operator's audited work says about it, and thresholds."""

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.requester.store.tables.base import Base


class Audit(Base):
    """An accepted task that an auditor is to run again. It is written by whoever holds its task."""

    __tablename__ = "audits"

    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    round: Mapped[int]
    state: Mapped[str]
    rate: Mapped[float]
    """The probability that it was drawn with; 1 where another failed audit brought it."""
    determinism_class: Mapped[str]
    """Whose machines may run it again."""
    reason: Mapped[str]
    scored: Mapped[bool] = mapped_column(default=False)
    """Its answer is a score and machines of any class may run it: the job's verifier is `loss_change`."""
    root: Mapped[str | None]
    """The payload root that the auditor found last."""
    sketch: Mapped[bytes | None] = mapped_column(deferred=True)
    """Of that payload under the wave's seed, kept as replicas' are; where the job compares sketches."""
    runs: Mapped[int] = mapped_column(default=0)
    auditor: Mapped[str] = mapped_column(default="")
    claimed_until: Mapped[float | None]
    seconds: Mapped[float | None]
    """Of the auditor's step."""
    created_at: Mapped[float]
    ended_at: Mapped[float | None]

    __table_args__ = (Index("audits_by_state", "state", "created_at"), Index("audits_of_job", "job_id", "state"))


_SKETCHED = text("sketch IS NOT NULL")


class TrustedRun(Base):
    """The answer to an audited task in one class, by somebody trusted: the audit's own, or one that is to calibrate."""

    __tablename__ = "trusted_runs"

    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    determinism_class: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    round: Mapped[int]
    family: Mapped[str]
    """Of the job: store.calibrations."""
    root: Mapped[str | None]
    """The payload root that was found last."""
    sketch: Mapped[bytes | None]
    """float32[tensors, 64] in the layout's order, little-endian; none while it is run, and once no other can follow."""
    runs: Mapped[int] = mapped_column(default=0)
    auditor: Mapped[str]
    claimed_until: Mapped[float | None]
    seconds: Mapped[float | None]
    """Of the auditor's step."""
    created_at: Mapped[float]
    ended_at: Mapped[float | None]

    __table_args__ = (
        Index("trusted_runs_alike", "family"),
        Index("trusted_runs_of_job", "job_id", "round"),
        Index("trusted_runs_sketched", "created_at", postgresql_where=_SKETCHED, sqlite_where=_SKETCHED),
    )


class Calibration(Base):
    """What the trusted runs of a family show of two classes, as market.rules.calibration has it."""

    __tablename__ = "calibrations"

    family: Mapped[str] = mapped_column(primary_key=True)
    one: Mapped[str] = mapped_column(primary_key=True)
    other: Mapped[str] = mapped_column(primary_key=True)
    """Two determinism classes, the first by name first."""
    state: Mapped[str]
    runs: Mapped[int]
    largest: Mapped[dict[str, Any]]
    """Deviation of each tensor."""
    changed_at: Mapped[float]


class Score(Base):
    """What an audit measured of an accepted gradient, and of the auditor's own: as market.rules.loss_change has it."""

    __tablename__ = "scores"

    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    operator: Mapped[str]
    own: Mapped[float]
    others: Mapped[list[Any]] = mapped_column(JSON)
    trusted_own: Mapped[float]
    trusted_others: Mapped[list[Any]] = mapped_column(JSON)
    number: Mapped[int | None]
    """In the order that the job's scores were judged in, from 0; what follows is empty before."""
    honest: Mapped[float | None]
    """At least this share of honest gradients passes, by the job's trusted runs until then; empty where too few do."""
    total: Mapped[float | None]
    """Of the operator's weights in its present test, this one among them."""

    __table_args__ = (
        Index("scores_of_job", "job_id", "number"),
        Index("scores_of_operator", "job_id", "operator", "number"),
    )


class Accusation(Base):
    """A worker with a stake in the job, and the wrong answer that an audit found of it."""

    __tablename__ = "accusations"

    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    worker: Mapped[str] = mapped_column(ForeignKey("workers.address"), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    state: Mapped[str]
    event: Mapped[bytes]
    """What it did: market.rules.accusing."""
    case: Mapped[bytes]
    """The contract's name for it."""
    amount: Mapped[str]
    """In the token's smallest unit, as a decimal string; zero until it is on the chain."""
    until: Mapped[int | None]
    """When the window to contest, or to decide, ends."""
    created_at: Mapped[float]

    __table_args__ = (Index("accusations_by_state", "state", "created_at"),)


class Strike(Base):
    """Answers that an operator owed in a job and did not give, as market.rules.strikes has it."""

    __tablename__ = "strikes"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    operator: Mapped[str] = mapped_column(primary_key=True)
    weight: Mapped[float]
    withheld: Mapped[float]
    at: Mapped[float]
    """When they had these weights."""
    until: Mapped[float]
    """The operator gets no work of the job before."""
    withheld_until: Mapped[float]
    """The same by withheld answers alone: in several jobs at once, they count for every job."""

    __table_args__ = (Index("strikes_of_operator", "operator"),)


class Reputation(Base):
    """An operator's or a wallet's record in one determinism class, as market.rules.reputation has it."""

    __tablename__ = "reputations"

    operator: Mapped[str] = mapped_column(primary_key=True)
    """The address that the record is of: who has its key, and nobody else, has the record."""
    determinism_class: Mapped[str] = mapped_column(primary_key=True)
    evidence: Mapped[float]
    at: Mapped[float]
    passed: Mapped[int] = mapped_column(default=0)
    failed: Mapped[int] = mapped_column(default=0)
    failed_at: Mapped[float | None]
    """When an audit of its work failed last, in whatever class, or of an operator's that it has left since."""


class Lean(Base):
    """What an operator's accepted answers in a job say together after a merge, as market.rules.drift has it."""

    __tablename__ = "leans"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    operator: Mapped[str] = mapped_column(primary_key=True)
    round: Mapped[int] = mapped_column(primary_key=True)
    """The merge that it was kept with; the newest few are kept, for a round may be taken back."""
    total: Mapped[bytes]
    """float64[64], little-endian."""
    squares: Mapped[float]
    rounds: Mapped[int]
