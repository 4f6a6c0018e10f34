"""Lists that are read page by page: their rows, and one page of them; and tags, as jobs' rows have them."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select, tuple_
from sqlalchemy.orm import InstrumentedAttribute

from gradmarket.market.terms import JobState
from requester.store.tables import Job, Round
from requester.store.work import RowReader

Keys = Sequence[InstrumentedAttribute[Any]]
"""The columns that order a list; together they are unique among its rows."""


def next_rows(
    reader: RowReader, rows: Select[Any], keys: Keys, after: Sequence[Any] | None, most: int
) -> Sequence[Any]:
    """Returns at most `most` rows in the order of `keys`, those after the row with the values `after`.

    A list of entities gives entities; one of columns gives rows of these.
    """
    if after is not None:
        rows = rows.where(tuple_(*keys) > tuple_(*after))
    result = reader.session.execute(rows.order_by(*keys).limit(most))
    return result.scalars().all() if len(rows.column_descriptions) == 1 else result.all()


def select_jobs(state: JobState | None, tag: str | None = None) -> Select[Job]:
    rows = select(Job) if state is None else select(Job).where(Job.state == state)
    return rows if tag is None else rows.where(has_tag(tag))


def select_rounds(job_id: str) -> Select[Round]:
    return select(Round).where(Round.job_id == job_id)


def pack_tags(tags: Iterable[str]) -> str:
    return "".join(f"|{tag}" for tag in tags) + "|" if tags else ""


def unpack_tags(packed: str) -> list[str]:
    return packed.strip("|").split("|") if packed else []


def has_tag(tag: str) -> ColumnElement[bool]:
    """Returns the condition that a job has the tag. LIKE would ignore its case on SQLite, but not on PostgreSQL."""
    return func.replace(Job.tags, f"|{tag}|", "") != Job.tags
