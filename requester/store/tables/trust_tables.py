"""Tables of trust: audits and trusted runs, thresholds, and the records of operators."""

from typing import Any

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.market.terms import AuditState, CalibrationState, Digest
from requester.store.tables.base import Base


class Audit(Base):
    """An accepted task that an auditor must run again. Only the holder of its task's lock writes it."""

    __tablename__ = "audits"

    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    round: Mapped[int]
    state: Mapped[AuditState]
    rate: Mapped[float]
    """The probability with which it was drawn; 1 where another audit's failure caused it."""
    determinism_class: Mapped[str]
    """The class of the machines that may run it again."""
    reason: Mapped[str]
    scored: Mapped[bool] = mapped_column(default=False)
    """Its answer is a score and machines of any class may run it: the job's verifier is `loss_change`."""
    root: Mapped[Digest | None]
    """The payload root that the auditor found last."""
    sketch: Mapped[bytes | None] = mapped_column(deferred=True)
    """Sketch of that payload under the wave's seed, stored like replicas' sketches; where the job compares sketches."""
    window: Mapped[int | None]
    """The window that is repeated beside the last one; None where the whole task is (rules.task_windows)."""
    leaves: Mapped[bytes | None] = mapped_column(deferred=True)
    """The leaves of the accepted answer one after another, until the audit repeats the whole task or is over."""
    runs: Mapped[int] = mapped_column(default=0)
    auditor: Mapped[str] = mapped_column(default="")
    claimed_until: Mapped[float | None]
    seconds: Mapped[float | None]
    """Duration of the auditor's step."""
    created_at: Mapped[float]
    ended_at: Mapped[float | None]

    __table_args__ = (Index("audits_by_state", "state", "created_at"), Index("audits_of_job", "job_id", "state"))


class AuditedClass(Base):
    """A determinism class that auditors ask for, and when one last did."""

    __tablename__ = "audited_classes"

    determinism_class: Mapped[str] = mapped_column(primary_key=True)
    asked_at: Mapped[float]


_SKETCHED = text("sketch IS NOT NULL")


class TrustedRun(Base):
    """A trusted answer to an audited task in one class: the audit's own, or one computed for calibration."""

    __tablename__ = "trusted_runs"

    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    determinism_class: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    round: Mapped[int]
    family: Mapped[str]
    """The job's family: store.calibrations."""
    root: Mapped[Digest | None]
    """The payload root that was found last."""
    sketch: Mapped[bytes | None]
    """float32[tensors, 64] in the layout's order, little-endian; None while it runs, and once no run can follow."""
    runs: Mapped[int] = mapped_column(default=0)
    auditor: Mapped[str]
    claimed_until: Mapped[float | None]
    seconds: Mapped[float | None]
    """Duration of the auditor's step."""
    created_at: Mapped[float]
    ended_at: Mapped[float | None]

    __table_args__ = (
        Index("trusted_runs_alike", "family"),
        Index("trusted_runs_of_job", "job_id", "round"),
        Index("trusted_runs_sketched", "created_at", postgresql_where=_SKETCHED, sqlite_where=_SKETCHED),
    )


class Calibration(Base):
    """What the trusted runs of a family show about two classes, by market.rules.calibration."""

    __tablename__ = "calibrations"

    family: Mapped[str] = mapped_column(primary_key=True)
    one: Mapped[str] = mapped_column(primary_key=True)
    other: Mapped[str] = mapped_column(primary_key=True)
    """Two determinism classes, in order of name."""
    state: Mapped[CalibrationState]
    runs: Mapped[int]
    largest: Mapped[dict[str, Any]]
    """The largest deviation of each tensor."""
    changed_at: Mapped[float]


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
    """An operator's or a wallet's record in one determinism class, by market.rules.reputation."""

    __tablename__ = "reputations"

    operator: Mapped[str] = mapped_column(primary_key=True)
    """The address whose record this is: only the holder of its key has the record."""
    determinism_class: Mapped[str] = mapped_column(primary_key=True)
    evidence: Mapped[float]
    at: Mapped[float]
    passed: Mapped[int] = mapped_column(default=0)
    failed: Mapped[int] = mapped_column(default=0)
    failed_at: Mapped[float | None]
    """When an audit of its work last failed, in any class, or of the work of an operator that it has left since."""
