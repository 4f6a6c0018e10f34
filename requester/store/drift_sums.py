"""Stores the sums of operators' accepted answers in a job. The rule is market.rules.drift."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from sqlalchemy import bindparam, select

from gradmarket.market.rules import drift
from requester.store.tables import Lean
from requester.store.work import RowReader, Work

NUMBERS: Final = np.dtype("<f8")


def of_job(reader: RowReader, job_id: str) -> Sequence[Lean]:
    """Returns all that is stored of the job's operators, the oldest first."""
    return reader.session.scalars(_OF_JOB, {"job": job_id}).all()


_OF_JOB: Final = select(Lean).where(Lean.job_id == bindparam("job")).order_by(Lean.round)


def before(rows: Iterable[Lean], number: int) -> dict[str, drift.Drift]:
    """Returns the sums by operator, as the merges of the rounds before `number` left them."""
    return {row.operator: _read(row) for row in rows if row.round < number}


def keep(
    work: Work, job_id: str, number: int, rows: Sequence[Lean], leans: Mapping[str, drift.Drift], first: int
) -> None:
    """Stores the operators' sums after this round's merge. Of `rows`, all that is stored of the job, deletes those of
    later merges, which were taken back, and needless older ones.

    No round before `first` is rewound.
    """
    earlier = [row for row in rows if row.round < number and row.operator in leans]
    for row in (*_needless(earlier, first), *(row for row in rows if row.round >= number)):
        work.session.delete(row)
    for operator, lean in leans.items():
        total = lean.total.astype(NUMBERS).tobytes()
        kept = {"operator": operator, "total": total, "squares": lean.squares, "rounds": lean.rounds}
        work.add(Lean(job_id=job_id, round=number, **kept))


def _needless(rows: Sequence[Lean], first: int) -> Iterable[Lean]:
    """Yields the rows from before round `first`, except each operator's newest.

    No round before `first` is rewound, so only the newest is needed.
    """
    settled = {row.operator: row for row in rows if row.round < first}
    return (row for row in rows if row.round < first and row is not settled[row.operator])


def _read(row: Lean) -> drift.Drift:
    return drift.Drift(np.frombuffer(row.total, NUMBERS), row.squares, row.rounds)
