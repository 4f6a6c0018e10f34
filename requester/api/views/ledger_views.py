"""Views of a job's ledger in double entry, and of whether it agrees with the contract's figures."""

from gradmarket.market.rules.bookkeeping import LedgerEntry
from gradmarket.market.views.ledger_views import EntryView
from requester.api.views.formats import format_amount


def entry_view(move: LedgerEntry, unit: str) -> EntryView:
    cause = move.cause
    return EntryView(
        kind=move.kind,
        debit=move.debit,
        credit=move.credit,
        amount=format_amount(move.units, unit),
        worker=move.worker,
        task=cause.task,
        replica=cause.replica,
        batch=cause.batch,
        tx=cause.tx,
        block=cause.block,
    )
