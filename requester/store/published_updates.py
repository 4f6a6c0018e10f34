"""Queries about the updates that a job's rounds published, in jobs with a downlink."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select

from gradmarket.market.terms import Digest
from requester.store.tables import Round
from requester.store.work import RowReader


@dataclass(frozen=True)
class UpdateStep:
    """An update, and the parameters before and after it, by digest."""

    before: Digest
    update: Digest
    updated: Digest


def leading_to(reader: RowReader, job_id: str, number: int, most: int) -> list[UpdateStep]:
    """Returns the last `most` updates that lead to the parameters after round `number`, the newest first."""
    found = select(Round).where(Round.job_id == job_id, Round.number <= number, Round.number >= number - most)
    rows = {row.number: row for row in reader.session.scalars(found)}
    steps = []
    for after in range(number, number - most, -1):
        row = rows.get(after)
        before = _find_changed_parameters(rows, after)
        if row is None or row.updated is None or row.published_update is None or before is None:
            break
        steps.append(UpdateStep(before, row.published_update, row.updated))
    return steps


def _find_changed_parameters(rows: dict[int, Round], number: int) -> Digest | None:
    """Returns the parameters that a round's merge changes: with an overlap, its tasks start from older ones."""
    if number == 0 and 0 in rows:
        return rows[0].parameters
    return rows[number - 1].updated if number - 1 in rows else None


def list_updates_between(reader: RowReader, job_id: str, after: int, through: int) -> Sequence[str]:
    """Returns the updates of the rounds after `after` up to `through`."""
    own = (Round.job_id == job_id, Round.number > after, Round.number <= through)
    return [digest for digest in reader.session.scalars(select(Round.published_update).where(*own)) if digest]
