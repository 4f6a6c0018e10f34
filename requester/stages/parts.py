"""Does parts of merges that several processes share: a row without a result is the request (moves.part_merge)."""

from collections.abc import Sequence
from typing import Final

from gradmarket.requester.context import Context
from gradmarket.requester.moves import part_merge
from gradmarket.requester.store import merge_part_rows
from gradmarket.requester.store.locks import alone
from gradmarket.requester.store.work import RowReader

TOPIC = part_merge.TOPIC
CALLED: Final = f"{TOPIC} "


def ready(reader: RowReader, _now: float) -> Sequence[str]:
    return merge_part_rows.to_do(reader, CALLED)


def run(context: Context, row_id: str) -> float | None:
    with alone(context.sessions, CALLED + row_id) as mine:
        if not mine:
            return context.settings.sweep_s
        part_merge.do(context, int(row_id))
    return None
