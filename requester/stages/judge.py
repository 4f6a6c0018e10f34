"""Judges revealed ballots: the result is a quorum, another wave or no decision, by the rule in market.rules.voting."""

from collections.abc import Sequence

from requester.context import Context
from requester.moves.judging import judge_tasks
from requester.store import ready_rows
from requester.store.in_hand import lock_task_if_free
from requester.store.work import RowReader

TOPIC = "judge"


def ready(reader: RowReader, now: float) -> Sequence[str]:
    return ready_rows.list_judgeable_tasks(reader, now)


def run(context: Context, task_id: str) -> float | None:
    with context.begin() as work:
        hand = lock_task_if_free(work, task_id)
        if hand is None:
            return context.settings.sweep_s
        judge_tasks(context, work, [hand])
    return None
