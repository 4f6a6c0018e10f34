"""The books of coverage: how often a job's updates used the rows of its data; market.features.coverage has the rule."""

from collections.abc import Mapping

from starlette.datastructures import State

from requester.api.response_cache import Recent
from requester.context import Context
from requester.feature import Feature
from requester.features.coverage import coverage_routes, coverage_rows
from requester.features.coverage.coverage_routes import Books
from requester.store.tables import Job
from requester.store.work import RowReader


class CoverageFeature(Feature):
    name = "coverage"
    routers = (coverage_routes.router,)

    def describe_job(self, reader: RowReader, job: Job) -> Mapping[str, object]:
        return {"coverage": coverage_routes.counts_view(coverage_rows.count_covered(reader, job))}

    def open_caches(self, state: State, context: Context) -> None:
        state.coverage = Recent[Books](state.strangers_share)
