"""Tables of jobs: a job, its rounds, and its events."""

from typing import Any, Final

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column, relationship, validates

from gradmarket.market.release import PROTOCOL
from gradmarket.market.terms import Address, Digest, Hash, JobState, RoundState
from requester.store.tables.base import Base, BigKey

_REPLAYED: Final = text("replay_from IS NOT NULL")
_PUBLISHED: Final = text("published_update IS NOT NULL")
NAMED_IN: Final = {
    "spec": ("document", "parameters"),
    "publication": ("document", "evaluation", "manifest", "metrics", "parameters"),
    "facts": ("memory",),
}
"""The fields in which a job names blobs: in `spec` those of its model."""


class Job(Base):
    __tablename__ = "jobs"

    id: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[JobState] = mapped_column(index=True)
    reason: Mapped[str] = mapped_column(default="")
    spec: Mapped[dict[str, Any]]
    visibility: Mapped[str] = mapped_column(default="workers", server_default="workers")
    """The spec's visibility, for queries."""
    swept: Mapped[bool] = mapped_column(default=True, server_default="1")
    """Whether a sweep looks at the job while a round of it is under way: a date may end it, or it opens rounds ahead,
    or sums them under masks.
    """
    continues: Mapped[str | None]
    """The job that the spec continues, for queries."""
    publication: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    """Large, like `facts`: loaded only when it is accessed, within the row's transaction."""
    spec_digest: Mapped[Digest | None]
    facts: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    """Facts about the document that the runner computed: layout, rows' cost, integer buffers (stages.publish)."""
    token: Mapped[str]
    """Name of the API token that posted the job."""
    secret: Mapped[Hash]
    """The wave secrets of all tasks are derived from it; never shown."""
    chain_job: Mapped[int | None] = mapped_column(unique=True)
    unit: Mapped[str]
    """The smallest units of the token in one job unit, as a decimal string."""
    price: Mapped[int]
    """The price of a gradient of its newest round; before that, of the first round; of a draft, the highest."""
    budget: Mapped[int]
    deposited: Mapped[int] = mapped_column(default=0)
    refunded: Mapped[int] = mapped_column(default=0)
    expiry: Mapped[int | None]
    claim_until: Mapped[int | None]
    determinism_class: Mapped[str | None]
    proven_class: Mapped[str | None]
    """The class in which audits confirmed enough operators (market.rules.classes)."""
    created_at: Mapped[float]
    protocol: Mapped[int] = mapped_column(default=PROTOCOL, server_default="0")
    """The rules under which it was opened (market.release)."""
    ended_at: Mapped[float | None]
    compute_seconds: Mapped[float] = mapped_column(default=0.0)
    fault: Mapped[dict[str, Any] | None]
    """The fault by which separate workers could not compute, while it keeps the job paused:
    market.views.job_views.FaultView.
    """
    tags: Mapped[str] = mapped_column(default="", server_default="")
    """Between bars, like "|first|second|"; empty for a job without tags."""
    note: Mapped[str] = mapped_column(default="", server_default="")
    best_round: Mapped[int | None]
    """The merged round after which the evaluation's metric was best (market.rules.metric_names)."""
    rewind_to: Mapped[int | None]
    """A merged round that an audit found wrong; it opens again once nothing of later rounds is in flight."""
    replay_from: Mapped[int | None] = mapped_column(default=0, server_default="0")
    """The first round whose payloads are kept to be merged again (moves.replay); None once the job is over."""
    blobs: Mapped[list["JobBlob"]] = relationship(cascade="all, delete-orphan")
    """The blobs that spec, publication and facts name, for queries; set with these three."""

    @validates("spec", "publication", "facts")
    def _names(self, field: str, fields: dict[str, Any] | None) -> dict[str, Any] | None:
        for part in NAMED_IN[field]:
            holder = (fields or {}).get("model", {}) if field == "spec" else fields or {}
            self._name(f"{field}.{part}", holder.get(part))
        if field == "spec" and fields is not None:
            dated = fields.get("stop") or fields.get("deadlines", {}).get("end")
            self.continues = (fields.get("continue_from") or {}).get("job")
            self.swept = bool(dated or fields.get("overlap") or fields.get("data", {}).get("secure_aggregation"))
        return fields

    def _name(self, part: str, digest: str | None) -> None:
        self.blobs = [row for row in self.blobs if row.part != part]
        if digest:
            self.blobs.append(JobBlob(digest=digest, part=part))

    __table_args__ = (
        Index("jobs_listed", "created_at", "id"),
        Index("jobs_replayed", "ended_at", sqlite_where=_REPLAYED, postgresql_where=_REPLAYED),
    )


class JobBlob(Base):
    """A blob that a job names, and where: `spec.parameters`, `publication.manifest` and so on."""

    __tablename__ = "job_blobs"

    digest: Mapped[Digest] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    part: Mapped[str] = mapped_column(primary_key=True)

    __table_args__ = (Index("job_blobs_of_job", "job_id"),)


class Holder(Base):
    """A worker that takes part in a private job with rows of its own; its first statement about them stands."""

    __tablename__ = "holders"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    worker: Mapped[Address] = mapped_column(ForeignKey("workers.address"), primary_key=True)
    rows: Mapped[int | None]
    """The number of its rows, where its owner states it."""
    joined_at: Mapped[float]


class UnneededBlob(Base):
    """A blob that a job no longer needs and that is not dropped yet: written in the transaction that releases it."""

    __tablename__ = "unneeded_blobs"

    digest: Mapped[Digest] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    """Its use in the job: `payload`, `snapshot`, `parameters`, `update` or `part` (moves.blob_cleanup)."""
    after: Mapped[int]
    """Of parameters and updates: the job needs those of rounds after this one."""
    at: Mapped[float]

    __table_args__ = (Index("unneeded_blobs_of_job", "job_id"),)


class UploadedBlob(Base):
    """A blob that was uploaded for jobs to name. It stays; an answer of equal content neither hides it nor drops it."""

    __tablename__ = "uploaded_blobs"

    digest: Mapped[Digest] = mapped_column(primary_key=True)
    at: Mapped[float]


class UnservedBlob(Base):
    """Rows that `token` uploaded for its jobs to measure on. No route serves them unless they were
    uploaded openly too.
    """

    __tablename__ = "unserved_blobs"

    digest: Mapped[Digest] = mapped_column(primary_key=True)
    token: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[float]


class Round(Base):
    __tablename__ = "rounds"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[RoundState]
    parameters: Mapped[Digest]
    """Digest of the parameters that the round's tasks start from."""
    price: Mapped[int]
    """The price of each of its gradients, in every offer; set when it opens."""
    optimizer_state: Mapped[Digest]
    """Digest of the optimizer's state after its merge, if stored (moves.snapshots); else empty."""
    updated: Mapped[Digest | None]
    """Digest of the parameters that its merge produced."""
    published_update: Mapped[Digest | None]
    """Digest of the update that leads from the parameters before to these, in a job with a downlink."""
    loss: Mapped[float | None]
    metrics: Mapped[dict[str, Any] | None]
    """Metrics of the updated parameters on the held-out rows."""
    drift: Mapped[dict[str, Any] | None]
    """The drift of its operators that its merge showed (features.drift); None where it had nothing to compare."""
    opened_at: Mapped[float]
    closed_at: Mapped[float | None]

    __table_args__ = (
        Index("rounds_by_state", "state", "job_id"),
        Index("rounds_by_updated", "updated"),
        Index("rounds_by_published_update", "published_update", sqlite_where=_PUBLISHED, postgresql_where=_PUBLISHED),
        Index("rounds_by_parameters", "parameters"),
        Index("rounds_by_optimizer_state", "optimizer_state"),
    )


class JobEvent(Base):
    __tablename__ = "events"

    id: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    kind: Mapped[str]
    body: Mapped[dict[str, Any]]
    at: Mapped[float]

    __table_args__ = (Index("events_of_job", "job_id", "id"),)
