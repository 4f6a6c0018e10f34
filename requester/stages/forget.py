"""Blobs that nobody needs any more are dropped, after the transaction that made them needless."""

from sqlalchemy import select

from gradmarket.market.terms import Digest
from gradmarket.requester.context import Context
from gradmarket.requester.store import jobs
from gradmarket.requester.store.tables import Round, Task

KEPT_NEWEST = 3
"""Rounds whose parameters are kept besides the checkpoints: who is late may still need them."""


def payload(context: Context, digest: Digest) -> None:
    """Drops an accepted payload that no merge waits for."""
    with context.reading() as session:
        needed = jobs.needs_payload(session, digest)
    if not needed:
        context.blobs.drop(digest)


def merged(context: Context, job_id: str, number: int) -> None:
    """Drops a merged round's payloads, and parameters that are neither new nor a checkpoint."""
    old, every = number - KEPT_NEWEST, context.settings.keep_parameters_every
    with context.reading() as session:
        row = session.get(Round, (job_id, old))
        dropped = [] if row is None else [row.updated or "", row.optimizer_state]
        dropped = [digest for digest in dropped if not jobs.needs_parameters(session, digest, job_id, old, every)]
        used = select(Task.payload).where(Task.job_id == job_id, Task.round == number, Task.used)
        payloads = session.scalars(used).all()
    for digest in dropped:
        context.blobs.drop(Digest(digest))
    for blob in payloads:
        payload(context, Digest(blob or ""))
