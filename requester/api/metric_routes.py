"""`/metrics` for Prometheus: the counters of this process, and counts of rows."""

from collections.abc import Iterator

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from requester.api.response_cache import CachedAnswers, Source
from requester.api.state import Here
from requester.context import Context
from requester.tallies import tallies

router = APIRouter(tags=["service"])


class _Rows(Collector):
    def __init__(self, context: Context) -> None:
        self._context = context

    def collect(self) -> Iterator[Metric]:
        with self._context.reading() as reader:
            yield from tallies(reader, self._context.clock())


@router.get("/metrics", operation_id="get_metrics", response_class=PlainTextResponse, summary="Prometheus metrics")
async def metrics(context: Here, request: Request, source: Source) -> Response:
    kept: CachedAnswers[bytes] = request.app.state.metrics
    return Response(await kept.get("", source, lambda: _told(context)), media_type=CONTENT_TYPE_LATEST)


def _told(context: Context) -> bytes:
    rows = CollectorRegistry(auto_describe=False)
    rows.register(_Rows(context))
    return generate_latest(context.meters.registry) + generate_latest(rows)
