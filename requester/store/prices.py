"""The price of a round, from its job's rule and rows: the same for every caller, and after any restart."""

from gradmarket.market.rules import payment
from gradmarket.market.rules.pricing import Past, PricedWork
from gradmarket.market.terms import Amount, Units
from requester.store import jobs
from requester.store.facts import facts_of
from requester.store.tables import Job, Round
from requester.store.work import RowReader


def price_of(reader: RowReader, job: Job, latest: Round | None) -> Units:
    """Returns the price of a gradient in a round that opens after `latest`, the newest closed one; None: the first."""
    unit = Amount(int(job.unit))
    overlapped = latest is not None and jobs.load_spec(job).overlap > 0
    before = reader.get(Round, (job.id, latest.number - 1)) if latest is not None and overlapped else None
    past = None if latest is None else _build_past(latest, before, unit)
    price = jobs.load_spec(job).price.of(PricedWork(facts_of(job).flops, unit), past)
    return payment.in_units("price", price, unit, payment.MAX_PRICE)


def _build_past(row: Round, before: Round | None, unit: Amount) -> Past:
    """With an overlap, the round's own time begins when the one before it is merged."""
    began = max(row.opened_at, before.closed_at or 0.0) if before else row.opened_at
    seconds = (row.closed_at or began) - began
    return Past(Amount(row.price * unit), round(1000 * seconds))
