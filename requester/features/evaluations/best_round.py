"""Keeps the parameters that did best on the held-out rows, however old they are. The rule is rules.metric_names."""

from gradmarket.market.rules.metric_names import find_best_round
from gradmarket.market.rules.stopping import find_direction
from gradmarket.market.terms import Digest
from requester.context import Context
from requester.moves import blob_cleanup
from requester.store import jobs, merges, unneeded
from requester.store.tables import Job, Round
from requester.store.work import Work


def mark_best_round(work: Work, job: Job, row: Round, now: float) -> None:
    """Called in the transaction that closed the round; the parameters that were best before are let go."""
    spec = jobs.load_spec(job)
    if spec.evaluation is None:
        return
    before = None if job.best_round is None else work.get(Round, (job.id, job.best_round))
    measured = [(one.number, one.metrics or {}) for one in (before, row) if one is not None]
    job.best_round = find_best_round(
        spec.evaluation.metric, measured, find_direction(spec.stop, spec.evaluation.metric)
    )
    if before is not None and before.number not in (job.best_round, row.number):
        oldest = row.number - blob_cleanup.kept_newest(spec)
        unneeded.release_blobs(work, job.id, blob_cleanup.PARAMETERS, [before.updated], now, oldest)


def choose_best_again(context: Context, work: Work, job: Job) -> None:
    """Called once merges were taken back; of the rounds that stand, those whose parameters are stored count."""
    spec = jobs.load_spec(job)
    if spec.evaluation is None:
        return
    newest = jobs.latest_closed(work, job.id)
    standing = merges.closed_between(work, job.id, -1, newest.number + 1) if newest else ()
    measured = [row for row in standing if row.metrics]
    kept = [(row.number, row.metrics or {}) for row in measured if context.blobs.has(Digest(row.updated or ""))]
    job.best_round = find_best_round(spec.evaluation.metric, kept, find_direction(spec.stop, spec.evaluation.metric))
