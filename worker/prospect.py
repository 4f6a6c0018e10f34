"""What a worker would earn, told before it joins: from the price of a job that runs and a step measured here."""

from typing import Final

from gradmarket.market.errors import MarketError
from gradmarket.market.job import Publication
from gradmarket.worker.client import JobView
from gradmarket.worker.desk import Desk
from gradmarket.worker.report import estimate

LOOKED_AT: Final = 8
"""Jobs that are looked at."""


def prospect(desk: Desk) -> None:
    """Says what the best paid job that this machine can do would bring an hour, or why that is not known."""
    for job, publication in _offered(desk):
        try:
            seconds = desk.bench.trial(publication)
        except MarketError as error:
            desk.journal.say("unfit", f"{job.name}: not for this machine: {error}", job=job.id)
            continue
        _say(desk, job, publication, seconds)
        return
    desk.journal.say("no_estimate", "No job runs that this worker would take; it waits for one.")


def _offered(desk: Desk) -> list[tuple[JobView, Publication]]:
    """Jobs that it would work for, the best paid first."""
    wanted = [job for job in desk.market.jobs() if not desk.settings.jobs or job.id in desk.settings.jobs]
    offered = [(job, desk.view(job.id).publication) for job in wanted[:LOOKED_AT]]
    fit = [
        (job, found) for job, found in offered if found is not None and found.spec.price.most >= desk.limits.min_price
    ]
    return sorted(fit, key=lambda pair: -pair[1].spec.price.least())


def _say(desk: Desk, job: JobView, publication: Publication, seconds: float) -> None:
    pay = publication.spec.price.least()
    hourly = estimate(pay, seconds)
    price, most = desk.money.text(pay), desk.money.text(hourly)
    text = (
        f"{job.name}: {price} a gradient, {seconds * 1000:.1f} ms a step here: at most {most} an hour, "
        "were there always a task for this worker and every gradient accepted."
    )
    facts = {"job": job.id, "price": str(pay), "step_seconds": seconds, "hourly": str(hourly)}
    desk.journal.say("estimate", text, **facts)
