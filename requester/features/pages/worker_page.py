"""The public view of a worker: its jobs, newest answers and record. Its earnings are shown to the worker alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gradmarket.market import signing
from gradmarket.market.errors import NotFound
from requester.context import Context
from requester.features import reputation as reputations
from requester.features.pages import overview
from requester.store import workers
from requester.store.tables import Reputation, Worker
from requester.store.work import RowReader

NEWEST: Final = 30


@dataclass(frozen=True, slots=True)
class WorkerPage:
    worker: Worker
    proven: bool
    present: bool
    barred: bool
    jobs: Sequence[Any]
    newest: Sequence[Any]
    records: Sequence[Reputation]


def build_worker_page(context: Context, reader: RowReader, address: str) -> WorkerPage:
    """Raises NotFound for an address that never signed in."""
    row = reader.get(Worker, signing.checksum_address(address))
    if row is None:
        raise NotFound(f"no worker {address} has signed in")
    now = context.clock()
    return WorkerPage(
        worker=row,
        proven=row.operator == row.payout,
        present=row.seen_at >= now - overview.ALIVE_S,
        barred=bool(workers.list_barred_keys(reader, [row], now)),
        jobs=overview.accounts_of(reader, row.address),
        newest=overview.newest_replicas(reader, row.address, NEWEST),
        records=reputations.list_reputations(reader, row.operator),
    )
