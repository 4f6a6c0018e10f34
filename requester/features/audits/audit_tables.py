"""Tables of audits: the tasks that an auditor must run again, and the classes that auditors ask for."""

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.market.terms import AuditState, Digest
from requester.store.tables import Base


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
    """The window that is repeated beside the last one; None where the whole task is (features.windows)."""
    leaves: Mapped[bytes | None] = mapped_column(deferred=True)
    """The leaves of the accepted answer one after another, until the audit repeats the whole task or is over."""
    runs: Mapped[int] = mapped_column(default=0)
    auditor: Mapped[str] = mapped_column(default="")
    claims: Mapped[int] = mapped_column(default=0, server_default="0")
    """Number of times that an auditor took it."""
    claimed_at: Mapped[float | None]
    """When an auditor last took it."""
    claimed_until: Mapped[float | None]
    seconds: Mapped[float | None]
    """Duration of the auditor's step."""
    created_at: Mapped[float]
    ended_at: Mapped[float | None]

    __table_args__ = (
        Index("audits_by_state", "state", "created_at"),
        Index("audits_of_job", "job_id", "state"),
        Index("audits_of_round", "job_id", "round"),
        Index("audits_claimed", "claimed_at"),
    )


class AuditedClass(Base):
    """A determinism class that auditors ask for, and when one last did."""

    __tablename__ = "audited_classes"

    determinism_class: Mapped[str] = mapped_column(primary_key=True)
    asked_at: Mapped[float]
