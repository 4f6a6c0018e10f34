"""Closes waves in which all replicas have committed or whose deadline has come, and opens their secrets."""

from collections.abc import Sequence

from requester.context import Context
from requester.moves.waves import close_wave_if_due
from requester.store import ready_rows
from requester.store.in_hand import lock_task_if_free
from requester.store.work import RowReader

TOPIC = "close"


def ready(reader: RowReader, now: float) -> Sequence[str]:
    return ready_rows.list_closable_tasks(reader, now)


def run(context: Context, task_id: str) -> float | None:
    with context.begin() as work:
        hand = lock_task_if_free(work, task_id)
        if hand is None:
            return context.settings.sweep_s
        if hand.task.due_at is not None:
            close_wave_if_due(context, work, hand, hand.task.due_at)
    return None
