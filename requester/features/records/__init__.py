"""Public records of a job: tasks with their evidence, verdicts, payments, counts, and its workers."""

from starlette.datastructures import State

from gradmarket.market.views.job_views import Stats
from requester.context import Context
from requester.feature import Feature
from requester.features.answer_cache import CachedAnswers, Recent
from requester.features.records import earning_routes, evidence_routes, record_routes
from requester.features.records.worker_figures import History


class RecordsFeature(Feature):
    name = "records"
    needs = ("answer_cache", "reputation")
    routers = (earning_routes.router, record_routes.router, evidence_routes.router)

    def open_caches(self, state: State, context: Context) -> None:
        state.stats = CachedAnswers[Stats](state.strangers_share)
        state.histories = Recent[History](state.strangers_share)
