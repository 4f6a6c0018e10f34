"""Drives all on-chain work in one sequence: opening jobs, reserving money, settling batches and refunding the rest."""

from collections.abc import Sequence

from requester.context import Context
from requester.store.work import RowReader

TOPIC = "settle"
PAUSE_S = 1.0


def ready(_reader: RowReader, _now: float) -> Sequence[str]:
    return ("chain",)


def run(context: Context, _chain: str) -> float | None:
    chain_worker = context.chain_worker
    return None if chain_worker.wanted() and chain_worker.step() else PAUSE_S
