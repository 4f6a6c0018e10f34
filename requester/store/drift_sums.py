"""Stores the sums of operators' accepted answers in a job. The rule is market.rules.drift."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from sqlalchemy import delete, select

from gradmarket.market.rules import drift
from gradmarket.requester.store.tables import Lean
from gradmarket.requester.store.work import RowReader, Work

NUMBERS: Final = np.dtype("<f8")


def before(reader: RowReader, job_id: str, number: int) -> dict[str, drift.Drift]:
    """Returns the sums by operator, as the merges of the rounds before `number` left them."""
    rows = select(Lean).where(Lean.job_id == job_id, Lean.round < number).order_by(Lean.round)
    return {row.operator: _read(row) for row in reader.session.scalars(rows)}


def keep(work: Work, job_id: str, number: int, leans: Mapping[str, drift.Drift], first: int) -> None:
    """Stores the operators' sums after this round's merge; deletes those of later rounds and needless older ones.

    No round before `first` is rewound.
    """
    work.session.execute(delete(Lean).where(Lean.job_id == job_id, Lean.round >= number))
    earlier = select(Lean).where(Lean.job_id == job_id, Lean.operator.in_(leans)).order_by(Lean.round)
    for row in _needless(work.session.scalars(earlier).all(), first):
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
