"""Deletes the rows that strangers left behind (leftover_rows)."""

from collections.abc import Sequence

from requester.context import Context
from requester.features.leftovers import leftover_rows
from requester.store.locks import hold_named_lock
from requester.store.work import RowReader

TOPIC = "sweep"


def ready(reader: RowReader, now: float) -> Sequence[str]:
    return (leftover_rows.NAME,) if leftover_rows.is_sweep_due(reader, now) else ()


def run(context: Context, row_id: str) -> float | None:
    with hold_named_lock(context.sessions, f"{TOPIC} {row_id}") as mine:
        if mine:
            with context.begin() as work:
                leftover_rows.delete_leftovers(work, context.clock(), context.settings.session_s)
    return None if mine else context.settings.sweep_s
