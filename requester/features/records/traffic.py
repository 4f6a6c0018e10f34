"""How many bytes a job's workers sent and fetched."""

from collections.abc import Mapping
from dataclasses import dataclass

from gradmarket.market.terms import Digest
from requester.context import Context
from requester.features.records import job_counts
from requester.store.tables import Job, Round
from requester.store.work import RowReader


@dataclass(frozen=True, slots=True)
class Traffic:
    """`up`: of the payloads that arrived, in bytes. `down`: one set of parameters for each replica, or one update where
    rounds publish updates, in bytes: what goes past this service is not counted otherwise. None before there is a set.
    """

    uploads: int
    up: int
    down: int | None


def traffic_of(
    context: Context, reader: RowReader, job: Job, newest: Round | None, replicas: Mapping[str, int]
) -> Traffic:
    """Returns the job's traffic, given its newest closed round and how many replicas it has in each state."""
    uploads, up = job_counts.count_uploads(reader, job.id)
    each = _find_fetched_bytes(context, job, newest)
    return Traffic(uploads, up, None if each is None else each * sum(replicas.values()))


def _find_fetched_bytes(context: Context, job: Job, newest: Round | None) -> int | None:
    """Returns the bytes that a replica fetches, by the newest of the job's blobs that is kept."""
    known = (newest.published_update, newest.updated) if newest is not None else ()
    digests = [*known, (job.publication or {}).get("parameters")]
    kept = (digest for digest in digests if digest and context.blobs.has(Digest(digest)))
    return next((context.blobs.length(Digest(digest)) for digest in kept), None)
