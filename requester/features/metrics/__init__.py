"""`/metrics` for Prometheus.

The counters of this process, and counts of rows.
"""

from collections.abc import Iterator

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector
from starlette.datastructures import State

from requester.api.auth_routes import Here
from requester.context import Context
from requester.feature import Feature, features_of
from requester.features.answer_cache import CachedAnswers, Share, Source
from requester.features.metrics.tallies import collect_metrics
from requester.stages import collect, plan
from requester.store.ready_rows import MOST
from requester.store.work import RowReader

router = APIRouter(tags=["service"])


class StageWaits:
    """Seconds for which rows of stages have been ready where no column shows it, as this process's scrapes saw them.

    In a stage with more rows than a sweep takes, a row that was seen once counts on while it is not among those shown.
    """

    def __init__(self, context: Context) -> None:
        own = (stage for feature in features_of(context) for stage in feature.stages)
        self._stages = {stage.TOPIC: stage for stage in (collect, plan, *own)}
        self._since: dict[str, dict[str, float]] = {topic: {} for topic in self._stages}

    def lags(self, reader: RowReader, now: float) -> dict[str, float]:
        """Returns the seconds that the longest waiting row of each stage has been ready; 0 where none is."""
        for topic, stage in self._stages.items():
            before, ids = self._since[topic], stage.ready(reader, now)
            shown = {row_id: before.get(row_id, now) for row_id in ids}
            self._since[topic] = before | shown if len(ids) >= MOST else shown
        return {topic: max((now - at for at in since.values()), default=0.0) for topic, since in self._since.items()}


class _Rows(Collector):
    def __init__(self, context: Context) -> None:
        self._context, self._waits = context, StageWaits(context)

    def collect(self) -> Iterator[Metric]:
        now = self._context.clock()
        with self._context.reading() as reader:
            yield from collect_metrics(reader, now, self._waits.lags(reader, now))


@router.get("/metrics", operation_id="get_metrics", response_class=PlainTextResponse, summary="Prometheus metrics")
async def metrics(context: Here, request: Request, source: Source) -> Response:
    kept: CachedAnswers[bytes] = request.app.state.metrics
    registries = (context.meters.registry, request.app.state.row_metrics)
    text = await kept.get("", source, lambda: b"".join(map(generate_latest, registries)))
    return Response(text, media_type=CONTENT_TYPE_LATEST)


class MetricsFeature(Feature):
    name = "metrics"
    needs = ("answer_cache",)
    routers = (router,)

    def open_caches(self, state: State, context: Context) -> None:
        state.row_metrics = CollectorRegistry(auto_describe=False)
        state.row_metrics.register(_Rows(context))
        state.metrics = CachedAnswers[bytes](Share())
