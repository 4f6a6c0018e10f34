"""Health and readiness: readiness is tested by using the database, the blob store and the chain."""

import threading
import time
from collections.abc import Mapping

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.datastructures import State

from gradmarket.market.fields import DeferredModel
from gradmarket.market.views.service_views import Readiness
from requester.context import Context
from requester.feature import Feature
from requester.features.part_troubles import probe_blobs, probe_database


class Health(DeferredModel):
    status: str


router = APIRouter(tags=["service"])

FRESH_S = 1.0


class Probe:
    """Probes at most once in FRESH_S seconds for all callers, since a probe writes and any caller may request it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._trying = threading.Lock()
        self._tried = float("-inf")
        self._found: Mapping[str, str] = {}

    def look(self) -> Mapping[str, str]:
        """Returns the fault of each part; an empty text without one."""
        with self._trying:
            if time.monotonic() - self._tried >= FRESH_S:
                self._found = self._probe_parts_now()
                self._tried = time.monotonic()
            return self._found

    def _probe_parts_now(self) -> Mapping[str, str]:
        context = self._context
        return {
            "database": probe_database(context),
            "blobs": probe_blobs(context),
            "chain": context.chain_trouble(),
        }


@router.get("/v1/health", operation_id="get_health", summary="The process answers")
async def get_health() -> Health:
    return Health(status="ok")


@router.get(
    "/v1/ready",
    operation_id="get_readiness",
    response_model=Readiness,
    responses={503: {"model": Readiness}},
    summary="It can work",
)
def ready(request: Request) -> JSONResponse:
    probe: Probe = request.app.state.probe
    troubles = probe.look()
    sound = not any(troubles.values())
    parts = {name: trouble or "ok" for name, trouble in troubles.items()}
    return JSONResponse({"status": "ok" if sound else "not ready", **parts}, 200 if sound else 503)


class HealthFeature(Feature):
    name = "health"
    needs = ("part_troubles",)
    routers = (router,)

    def open_caches(self, state: State, context: Context) -> None:
        state.probe = Probe(context)
