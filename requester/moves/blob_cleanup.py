"""Deletes blobs that nobody needs any more, after the transaction that made them unnecessary."""

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
"""How many newest rounds keep their parameters besides the checkpoints, since late workers may still need them."""


def keep_still(context: Context, session: Session, blobs: Mapping[Digest, Callable[[], object]]) -> None:
    """Locks blobs for the transaction that refers to them, and stores again those that are missing.

    Another job may have deleted equal content since it was stored. `blobs` maps each digest to a function that stores
    the blob again.
    """
    one_at_a_time(session, *map(_name, blobs))
    for digest, keep in blobs.items():
        if not context.blobs.has(digest):
            keep()


def _name(digest: Digest) -> str:
    return f"blob {digest}"


def payload(context: Context, digest: Digest) -> None:
    """Deletes an accepted payload if no merge waits for it."""
    drop(context, digest, lambda session: jobs.needs_payload(session, digest))


def drop(context: Context, digest: Digest, needed: Callable[[Session], bool]) -> None:
    """Deletes the blob if `needed` says no, in a writing transaction, so that nobody refers to it in between."""
    with context.begin() as session:
        one_at_a_time(session, _name(digest))
        if not needed(session):
            context.blobs.drop(digest)


def oldest_kept(number: int) -> int:
    """Returns the first round whose parameters are still kept once round `number` is merged."""
    return number - KEPT_NEWEST + 2


def merged(context: Context, job_id: str, number: int) -> None:
    """Deletes a merged round's payloads, and parameters that are neither new nor a checkpoint."""
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
