"""Closes waves in which all replicas have committed or whose deadline has come, and opens their secrets."""

from collections.abc import Sequence

from requester.context import Context
from requester.moves.waves import advance
from requester.store import ready_rows
from requester.store.in_hand import claimed
from requester.store.work import RowReader

TOPIC = "close"


def ready(reader: RowReader, now: float) -> Sequence[str]:
    return ready_rows.closable(reader, now)


def run(context: Context, task_id: str) -> float | None:
    with context.begin() as work:
        hand = claimed(work, task_id)
        if hand is None:
            return context.settings.sweep_s
        advance(context, work, hand)
    return None
