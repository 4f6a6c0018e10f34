"""What a worker would earn, told before it joins: from the prices of running jobs and their steps, measured here."""

from typing import Final

from gradmarket.market.errors import MarketError
from gradmarket.market.job import Publication
from gradmarket.market.rules.pricing import Work
from gradmarket.market.terms import Amount
from gradmarket.worker.client import JobView
from gradmarket.worker.desk import Desk
from gradmarket.worker.worth import Prospect, best, hourly, least

LOOKED_AT: Final = 8
"""Jobs that are looked at."""


def prospect(desk: Desk) -> Prospect | None:
    """Says, and tells, what the best job that this machine can do would bring an hour, or why that is not known."""
    found = []
    for job, publication in _offered(desk):
        try:
            found.append(_measured(desk, job, publication))
        except MarketError as error:
            desk.journal.say("unfit", f"{job.name}: not for this machine: {error}", job=job.id)
    chosen = best(found, desk.limits.minimum)
    if chosen is not None:
        _say(desk, chosen)
        return chosen
    for one in found:
        wanted = desk.money.text(least(desk.limits.minimum, one.effort))
        text = f"{one.name} pays {desk.money.text(one.price)} a gradient, under the {wanted} that the minimums ask."
        desk.journal.say("too_cheap", text)
    desk.journal.say("no_estimate", "No job runs that this worker would take; it waits for one.")
    return None


def _measured(desk: Desk, job: JobView, publication: Publication) -> Prospect:
    """By the price of its first round: what later ones pay is in their offers."""
    effort = desk.effort(job.id, publication)
    price = publication.spec.price.of(Work(effort.flops, Amount(int(desk.facts.unit))), None)
    return Prospect(job.id, job.name, price, effort)


def _offered(desk: Desk) -> list[tuple[JobView, Publication]]:
    """Jobs that it would work for."""
    wanted = [job for job in desk.market.jobs() if not desk.settings.jobs or job.id in desk.settings.jobs]
    offered = [(job, desk.view(job.id).publication) for job in wanted[:LOOKED_AT]]
    least_set = desk.limits.min_price
    return [(job, found) for job, found in offered if found is not None and found.spec.price.most >= least_set]


def _say(desk: Desk, chosen: Prospect) -> None:
    pay = hourly(chosen.price, chosen.effort)
    text = (
        f"{chosen.name}: {desk.money.text(chosen.price)} a gradient of {chosen.effort.flops / 1e12:.3g} TFLOP, "
        f"{chosen.effort.seconds * 1000:.1f} ms a step here: at most {desk.money.text(pay)} an hour, "
        "were there always a task for this worker and every gradient accepted."
    )
    facts = {"price": str(chosen.price), "flops": chosen.effort.flops, "step_seconds": chosen.effort.seconds}
    desk.journal.say("estimate", text, job=chosen.job, hourly=str(pay), **facts)
