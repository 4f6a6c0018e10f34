"""The sums of operators' accepted answers in a job. The rule is market.features.drift."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from sqlalchemy import ForeignKey, bindparam, select
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.market.features import drift
from gradmarket.market.terms import JobState, RoundState
from requester.store.tables import Base, Job, Round
from requester.store.work import RowReader, Work

NUMBERS: Final = np.dtype("<f8")
ENDED: Final = (JobState.FINISHED, JobState.CANCELLED, JobState.FAILED)


class Lean(Base):
    """The sum of an operator's accepted answers in a job after a merge, by market.features.drift."""

    __tablename__ = "leans"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    operator: Mapped[str] = mapped_column(primary_key=True)
    round: Mapped[int] = mapped_column(primary_key=True)
    """The round whose merge stored it; the newest few are kept, since a round may be rewound."""
    total: Mapped[bytes]
    """float64[64], little-endian."""
    squares: Mapped[float]
    rounds: Mapped[int]


def of_job(reader: RowReader, job_id: str) -> Sequence[Lean]:
    """Returns the stored sums of the job's operators, the oldest first."""
    return reader.session.scalars(_OF_JOB, {"job": job_id}).all()


_OF_JOB: Final = select(Lean).where(Lean.job_id == bindparam("job")).order_by(Lean.round)


def list_sums_before(rows: Iterable[Lean], number: int) -> dict[str, drift.Drift]:
    """Returns the sums by operator, as the merges of the rounds before `number` left them."""
    return {
        row.operator: drift.Drift(np.frombuffer(row.total, NUMBERS), row.squares, row.rounds)
        for row in rows
        if row.round < number
    }


def store_leans(
    work: Work, job_id: str, number: int, rows: Sequence[Lean], leans: Mapping[str, drift.Drift], first: int
) -> None:
    """Stores the operators' sums after this round's merge.

    `rows`: all stored sums of the job; those of later merges, which were taken back, are deleted. So are those from
    before round `first` except each operator's newest, since no round before `first` is rewound.
    """
    earlier = [row for row in rows if row.round < number and row.operator in leans]
    settled = {row.operator: row for row in earlier if row.round < first}
    needless = [row for row in earlier if row.round < first and row is not settled[row.operator]]
    for row in (*needless, *(row for row in rows if row.round >= number)):
        work.session.delete(row)
    for operator, lean in leans.items():
        total = lean.total.astype(NUMBERS).tobytes()
        kept = {"operator": operator, "total": total, "squares": lean.squares, "rounds": lean.rounds}
        work.add(Lean(job_id=job_id, round=number, **kept))


def newest_drifts(reader: RowReader) -> Sequence[tuple[str, dict[str, Any]]]:
    """Returns the jobs that have not ended, with the drift of their newest merge (Round.drift)."""
    merged = select(Round.drift).where(Round.job_id == Job.id, Round.state == RoundState.CLOSED)
    newest = merged.order_by(Round.number.desc()).limit(1).scalar_subquery()
    rows = reader.session.execute(select(Job.id, newest).where(Job.state.not_in(ENDED)))
    return [(job_id, drift) for job_id, drift in rows if drift]
