"""Tags of jobs, as their rows have them."""

from collections.abc import Iterable

from sqlalchemy import ColumnElement, func

from requester.store.tables import Job


def pack_tags(tags: Iterable[str]) -> str:
    return "".join(f"|{tag}" for tag in tags) + "|" if tags else ""


def unpack_tags(packed: str) -> list[str]:
    return packed.strip("|").split("|") if packed else []


def has_tag(tag: str) -> ColumnElement[bool]:
    """Returns the condition that a job has the tag. LIKE would ignore its case on SQLite, but not on PostgreSQL."""
    return func.replace(Job.tags, f"|{tag}|", "") != Job.tags
