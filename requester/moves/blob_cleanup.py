"""Blobs that nobody needs any more are dropped, after the transaction that made them needless."""

from collections.abc import Callable, Mapping
from functools import partial

from sqlalchemy import select
from sqlalchemy.orm import Session

from gradmarket.market.terms import Digest
from gradmarket.requester.context import Context
from gradmarket.requester.store import jobs
from gradmarket.requester.store.session import one_at_a_time
from gradmarket.requester.store.tables import Round, Task

KEPT_NEWEST = 3
"""Rounds whose parameters are kept besides the checkpoints: who is late may still need them."""


def keep_still(context: Context, session: Session, blobs: Mapping[Digest, Callable[[], object]]) -> None:
    """For the transaction that names blobs: other jobs may have dropped equal content since it was kept.

    `blobs`: how each is kept again.
    """
    one_at_a_time(session, *map(_name, blobs))
    for digest, keep in blobs.items():
        if not context.blobs.has(digest):
            keep()


def _name(digest: Digest) -> str:
    return f"blob {digest}"


def payload(context: Context, digest: Digest) -> None:
    """Drops an accepted payload that no merge waits for."""
    drop(context, digest, lambda session: jobs.needs_payload(session, digest))


def drop(context: Context, digest: Digest, needed: Callable[[Session], bool]) -> None:
    """A writing transaction, so that nobody names the blob between the look and the drop."""
    with context.begin() as session:
        one_at_a_time(session, _name(digest))
        if not needed(session):
            context.blobs.drop(digest)


def oldest_kept(number: int) -> int:
    """The first round whose tasks may still be computed, once round `number` is merged: its parameters are there."""
    return number - KEPT_NEWEST + 2


def merged(context: Context, job_id: str, number: int) -> None:
    """Drops a merged round's payloads, and parameters that are neither new nor a checkpoint."""
    old, every = number - KEPT_NEWEST, context.settings.keep_parameters_every
    with context.reading() as session:
        row = session.get(Round, (job_id, old))
        dropped = [] if row is None else [Digest(row.updated or ""), Digest(row.optimizer_state)]
        used = select(Task.payload).where(Task.job_id == job_id, Task.round == number, Task.used)
        payloads = session.scalars(used).all()
    for digest in dropped:
        drop(context, digest, partial(jobs.needs_parameters, digest=digest, job_id=job_id, after=old, every=every))
    for blob in payloads:
        payload(context, Digest(blob or ""))
