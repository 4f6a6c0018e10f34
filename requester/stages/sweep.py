"""Deletes the rows that strangers left behind (store.leftovers)."""

from collections.abc import Sequence

from requester.context import Context
from requester.store import leftovers
from requester.store.locks import alone
from requester.store.work import RowReader

TOPIC = "sweep"


def ready(reader: RowReader, now: float) -> Sequence[str]:
    return (leftovers.NAME,) if leftovers.due(reader, now) else ()


def run(context: Context, row_id: str) -> float | None:
    with alone(context.sessions, f"{TOPIC} {row_id}") as mine:
        if mine:
            with context.begin() as work:
                leftovers.sweep(work, context.clock(), context.settings.session_s)
    return None if mine else context.settings.sweep_s
