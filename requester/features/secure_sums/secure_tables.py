"""Tables of secure aggregations: the sum of a round, and the messages of its holders with their replies."""

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.market.terms import Digest, Hash
from requester.store.tables.base import Base


class SecureSum(Base):
    """The sum of a round of a private job; nobody sees its parts (market.features.secure_sums)."""

    __tablename__ = "secure_sums"

    id: Mapped[str] = mapped_column(primary_key=True)
    """The job's id and the round's number."""
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    round: Mapped[int]
    attempt: Mapped[int] = mapped_column(default=0)
    step: Mapped[int] = mapped_column(default=1)
    """The step that is open, 1 to 5; 6 once the sum exists."""
    start: Mapped[Hash]
    """Digest of the inputs from which the round's vectors follow (secure_sums.job_sum.start_of)."""
    beacon: Mapped[Hash]
    """The hash of the block that draws the pairs of holders that mask with each other."""
    expected: Mapped[int]
    """Messages that end the step at once."""
    due_at: Mapped[float | None]
    """When the step is checked though messages are missing; None before the first message."""
    key_list: Mapped[bytes | None]
    """The digests of all holders' keys (secure_sums.signed.key_list); set when step 1 ends."""
    sharers: Mapped[bytes | None]
    """The set of holders that shared their secrets, as bits; set when step 2 ends."""
    survivors: Mapped[bytes | None]
    """The set of holders whose vectors are summed; set when step 3 ends."""
    total: Mapped[Digest | None]
    """The blob of the mean, as a payload; set when step 5 ends."""

    __table_args__ = (UniqueConstraint("job_id", "round"),)


class SecureMessage(Base):
    """A holder's message in a step, and the reply once the step is over: JSON as in secure_sums.sum_messages."""

    __tablename__ = "secure_messages"

    sum_id: Mapped[str] = mapped_column(ForeignKey("secure_sums.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    holder: Mapped[int] = mapped_column(primary_key=True)
    """Its number in the aggregation."""
    said: Mapped[bytes]
    vector: Mapped[Digest | None]
    """In step 3, the blob of its masked vector until that is summed (secure_sums.secure_messages)."""
    told: Mapped[bytes | None]
    """The reply; None while the step is open, and for a holder that gets none."""
