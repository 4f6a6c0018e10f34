"""The privacy that the rounds of a job have spent, as its view shows it."""

from collections.abc import Mapping

from gradmarket.market.features.private.holder_budget import HolderBudget, build_holder_budget
from gradmarket.market.features.private.row_budget import build_row_spending
from gradmarket.market.job import JobSpec
from gradmarket.market.views.job_views import PrivacyView, RowPrivacyView
from requester.store import jobs
from requester.store.round_sum import count_noised_rounds
from requester.store.tables import Job
from requester.store.work import RowReader


def describe_spent_privacy(reader: RowReader, job: Job) -> Mapping[str, object]:
    """Returns the fields of the job's view; empty for a job that bounds neither holders nor rows."""
    spec = jobs.load_spec(job)
    if spec.privacy is None and not spec.step.by_row:
        return {}
    newest = jobs.latest_closed(reader, job.id)
    merged, found = newest.number + 1 if newest else 0, dict[str, object]()
    if (budget := build_holder_budget(spec)) is not None:
        noised = count_noised_rounds(reader, job.id, spec, merged) if merged else 0.0
        found["privacy"] = privacy_view(budget, noised)
    return found | {"row_privacy": row_privacy_view(spec, merged)}


def row_privacy_view(spec: JobSpec, rounds: int) -> RowPrivacyView | None:
    """Returns the privacy loss of one row after `rounds` merged rounds, where the job bounds it."""
    if (rows := build_row_spending(spec)) is None:
        return None
    counted = {"spent": rows.spent(rounds), "uses": rows.uses_after(rounds)}
    return RowPrivacyView(epsilon=rows.asked.epsilon, delta=rows.asked.delta, rounds=rows.rounds, **counted)


def privacy_view(budget: HolderBudget, rounds: float) -> PrivacyView:
    """Returns the privacy loss of one holder after `rounds` rounds of the least noise."""
    asked, spent = budget.asked, budget.after(rounds)
    return PrivacyView(epsilon=asked.epsilon, delta=asked.delta, spent=spent, rounds=budget.rounds)
