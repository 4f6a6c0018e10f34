"""Collects the leftovers of jobs: blobs that no replay of an ended job needs, and those a killed process released."""

from collections.abc import Sequence
from typing import Final

from requester.context import Context
from requester.moves import blob_cleanup, snapshots
from requester.store import jobs, unneeded
from requester.store.ready_rows import limited
from requester.store.tables import Job
from requester.store.work import RowReader

TOPIC = "collect"
LEFT_S: Final = 60.0
"""Seconds after which a process that released a blob counts as dead before it dropped it."""


def ready(reader: RowReader, now: float) -> Sequence[str]:
    over = [job.id for job in jobs.ended_uncollected(reader) if snapshots.is_settled(reader, job)]
    return limited(list(dict.fromkeys([*over, *unneeded.left_over(reader, now - LEFT_S)])))


def run(context: Context, job_id: str) -> None:
    with context.reading() as reader:
        settled = snapshots.is_settled(reader, reader.get_one(Job, job_id))
    if settled:
        snapshots.store_last_state(context, job_id)
        snapshots.collect_replay_blobs(context, job_id)
    else:
        blob_cleanup.drop_unneeded(context, job_id)
