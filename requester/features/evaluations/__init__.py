"""Evaluations: which metrics a job measures, and the parameters that did best on the held-out rows."""

from gradmarket.market.data.manifest import Manifest
from gradmarket.market.job import Publication
from requester.context import Context
from requester.feature import Feature
from requester.features.evaluations import best_round, measured_metrics
from requester.store.tables import Job, Round
from requester.store.work import Work


class EvaluationsFeature(Feature):
    name = "evaluations"

    def check_publication(self, context: Context, publication: Publication, manifest: Manifest) -> None:
        measured_metrics.check_metrics(context, publication, manifest)

    def round_closed(self, work: Work, job: Job, row: Round, now: float) -> None:
        best_round.mark_best_round(work, job, row, now)

    def rounds_undone(self, context: Context, work: Work, job: Job, first: int, now: float) -> None:
        best_round.choose_best_again(context, work, job)
