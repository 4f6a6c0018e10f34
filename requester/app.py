"""Builds the FastAPI application over a context; the stages may run elsewhere."""

import asyncio
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Final

import structlog
from fastapi import APIRouter, FastAPI
from pydantic.warnings import UnsupportedFieldAttributeWarning
from starlette.staticfiles import StaticFiles

from gradmarket.network.environment import path_of
from gradmarket.pages import ASSETS
from requester.api import (
    blob_routes,
    job_routes,
    long_poll,
    payload_uploads,
    problems,
    sign_in_routes,
    worker_routes,
)
from requester.api.auth_routes import Callers
from requester.api.callers import Buckets, Rate
from requester.context import Context
from requester.feature import Feature, features_of
from requester.serving import OwnPath

ROUTERS: Final = (
    *(routes.router for routes in (worker_routes, payload_uploads, blob_routes, sign_in_routes)),
    *(sign_in_routes.chain_router, job_routes.router),
)
"""The routers, the most used first: FastAPI tries one after the other."""


def routers_with(features: Iterable[Feature]) -> tuple[APIRouter, ...]:
    """Returns all routers: the kernel's and these features'."""
    return (*ROUTERS, *(router for feature in features for router in feature.routers))


log = structlog.get_logger("gradmarket.app")


def create_app(context: Context, drive: Callable[[], AbstractContextManager[object]]) -> FastAPI:
    """Returns the application; `drive` is entered while it serves, and runs the stages in the embedded form."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        work = {
            "news": lambda: worker_routes.look_out(context),
            "presence": app.state.parked.renew_presence,
            "unfinished uploads": lambda: payload_uploads.run_upload_cleanup(context),
        }
        watches = [
            asyncio.create_task(rerun_after_errors(name, begin, settings.sweep_s)) for name, begin in work.items()
        ]
        try:
            with drive():
                yield
        finally:
            for watch in watches:
                watch.cancel()

    settings = context.settings
    # FastAPI ignores it where it builds a body's validator: those of a DeferredModel are built by the first request
    warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)
    app = FastAPI(
        title="gradmarket",
        summary="A marketplace for gradients: strangers' GPUs train your model and are paid per accepted gradient.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's pages load scripts from elsewhere
        redoc_url=None,
        responses=problems.EVERYWHERE,
    )
    # the routes share token buckets, long polls and batches
    app.state.context = context
    app.state.wallets = Buckets(Rate(settings.wallet_rate, settings.wallet_burst))
    app.state.callers = Callers()
    app.state.nonces = sign_in_routes.Nonces(context.signer)
    app.state.crowd = payload_uploads.build_worker_dispatchers(context)
    app.state.readers = payload_uploads.PieceReaders()
    app.state.parked = long_poll.LongPolls(context)
    for feature in features_of(context):
        feature.open_caches(app.state, context)
    problems.install_error_handlers(app)
    app.state.routers = routers_with(features_of(context))
    for router in app.state.routers:
        app.include_router(router)
    app.mount("/assets", StaticFiles(directory=ASSETS), name="assets")
    for feature in features_of(context):
        feature.add_middleware(app, context)
    # the middleware added last is the first that a request reaches
    for feature in features_of(context):
        feature.limit_requests(app, context)
    app.add_middleware(OwnPath, path=path_of(context.public_url))
    return app


async def rerun_after_errors(name: str, begin: Callable[[], Awaitable[None]], pause_s: float) -> None:
    """Runs background work until it ends by itself; logs an unexpected error, and begins it again."""
    while True:
        try:
            return await begin()
        except Exception:
            log.exception("background work failed and begins again", work=name)
        await asyncio.sleep(pause_s)
