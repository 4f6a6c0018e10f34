"""What a round pays, from its job's rule and rows: the same for every caller, and after any restart."""

from gradmarket.market.rules import payment
from gradmarket.market.rules.pricing import Past, PricedWork
from gradmarket.market.terms import Amount, Units
from gradmarket.requester.store import jobs
from gradmarket.requester.store.facts import facts_of
from gradmarket.requester.store.tables import Job, Round


def price_of(job: Job, latest: Round | None) -> Units:
    """Returns what a gradient pays in the round after `latest`, the newest closed one; None: in the first round."""
    unit = Amount(int(job.unit))
    price = jobs.spec(job).price.of(PricedWork(facts_of(job).flops, unit), _past(latest, unit))
    return payment.in_units("price", price, unit, payment.MAX_PRICE)


def _past(row: Round | None, unit: Amount) -> Past | None:
    if row is None:
        return None
    seconds = (row.closed_at or row.opened_at) - row.opened_at
    return Past(Amount(row.price * unit), round(1000 * seconds))
