"""`/metrics` for Prometheus."""

from starlette.datastructures import State

from requester.api.response_cache import CachedAnswers, Share
from requester.context import Context
from requester.feature import Feature
from requester.features.metrics import metric_routes
from requester.features.metrics.metric_routes import StageWaits


class MetricsFeature(Feature):
    name = "metrics"
    routers = (metric_routes.router,)

    def open_caches(self, state: State, context: Context) -> None:
        state.stage_waits = StageWaits(context)
        state.metrics = CachedAnswers[bytes](Share())
