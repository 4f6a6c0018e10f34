"""Does parts of merges that several processes share: a row without a result is the request (part_merge)."""

from collections.abc import Sequence
from typing import Final

from gradmarket.market.errors import NotFound
from requester.context import Context
from requester.features.part_merges import merge_part_rows, part_merge
from requester.moves import merge_trouble
from requester.store.locks import hold_named_lock
from requester.store.work import RowReader

TOPIC = part_merge.TOPIC
CALLED: Final = f"{TOPIC} "


def ready(reader: RowReader, _now: float) -> Sequence[str]:
    return merge_part_rows.find_requested(reader, CALLED)


def run(context: Context, row_id: str) -> float | None:
    with hold_named_lock(context.sessions, CALLED + row_id) as mine:
        if not mine:
            return context.settings.sweep_s
        _compute_part(context, int(row_id))
    return None


def _compute_part(context: Context, number: int) -> None:
    """Does a part. A blob that is gone is no trouble yet: one process merges the round then, and says what it lacks."""
    with context.reading() as reader:
        job_id = merge_part_rows.job_of(reader, number)
    if job_id is None:
        return
    with merge_trouble.report_merge_failure(context, job_id, but=NotFound):
        part_merge.compute_part(context, number)
