"""Tables of trust: the answers that operators owed and did not give, and the records of operators."""

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from requester.store.tables.base import Base


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
