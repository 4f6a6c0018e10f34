"""Estimates a worker's pay before it joins a market, from the prices of running jobs and their steps, measured here."""

from typing import Final

from gradmarket.market.errors import MarketError
from gradmarket.market.rules.pricing import PricedWork
from gradmarket.market.terms import Amount, JobId
from worker.markets.leasing import UNFIT
from worker.markets.worker_context import WorkerContext
from worker.protocol.worth import Prospect, compute_hourly_pay, compute_least_price, find_best_prospect

LOOKED_AT: Final = 8
"""The most jobs that are measured."""


def estimate_best_prospect(context: WorkerContext) -> Prospect | None:
    """Logs and returns the expected pay of the best job for this machine; logs why and returns None if no job fits.

    Uses the price of a job's first round: later prices are in their offers.
    """
    settings, prospects = context.settings, list[Prospect]()
    allowed = [job for job in context.market.jobs() if not settings.jobs or job.id in settings.jobs]
    for job in allowed[:LOOKED_AT]:
        try:
            publication = context.view(job.id).publication
            if publication is None or publication.spec.price.most < context.limits.min_price:
                continue
            effort = context.effort(job.id, publication)
        except UNFIT as error:
            context.journal.report("unfit", f"{job.name}: not for this machine: {error}", job=job.id)
        else:
            price = publication.spec.price.of(PricedWork(effort.flops, Amount(int(context.facts.unit))), None)
            prospects.append(Prospect(job.id, job.name, price, effort))
    chosen = find_best_prospect(prospects, context.limits.minimum)
    if chosen is not None:
        pay = compute_hourly_pay(chosen.price, chosen.effort)
        text = (
            f"{chosen.name}: {context.money.text(chosen.price)} a gradient of {chosen.effort.flops / 1e12:.3g} TFLOP, "
            f"{chosen.effort.seconds * 1000:.1f} ms a step here: at most {context.money.about(pay)} an hour, "
            "were there always a task for this worker and every gradient accepted."
        )
        try:
            expected = context.market.pay(JobId(chosen.job)).expected_hourly
        except MarketError:
            expected = None
        if expected is not None:
            text += f" By the job's newest rounds, one more worker earns {context.money.about(expected)} an hour."
        facts = {"price": str(chosen.price), "flops": chosen.effort.flops, "step_seconds": chosen.effort.seconds}
        facts["expected"] = None if expected is None else str(expected)
        context.journal.report("estimate", text, job=chosen.job, hourly=str(pay), **facts)
        return chosen
    for one in prospects:
        lowest = context.money.text(compute_least_price(context.limits.minimum, one.effort))
        text = f"{one.name} pays {context.money.text(one.price)} a gradient, under the {lowest} that the minimums ask."
        context.journal.report("too_cheap", text)
    context.journal.report("no_estimate", "No job runs that this worker would take; it waits for one.")
    return None
