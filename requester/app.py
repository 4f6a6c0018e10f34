"""The FastAPI application over a context; whoever drives the stages is not its business."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Final

from fastapi import FastAPI

from gradmarket.requester.api import (
    audits,
    auth,
    blobs,
    calibration,
    chain,
    consents,
    events,
    following,
    funds,
    health,
    jobs,
    kept,
    ledger,
    metrics,
    nonces,
    openapi,
    parked,
    payments,
    problems,
    rounds,
    statements,
    together,
    tokens,
    work,
)
from gradmarket.requester.api.rates import Buckets, Rate
from gradmarket.requester.api.views.jobs import Stats
from gradmarket.requester.context import Context
from gradmarket.requester.edge.body import BodyLimit
from gradmarket.requester.edge.rates import RateLimit
from gradmarket.requester.edge.token_first import TokenFirst
from gradmarket.requester.edge.watch import Watch
from gradmarket.requester.store.answers import History
from gradmarket.requester.store.progress import Standing

DOORS: Final = (
    *(auth, tokens, consents, jobs, rounds, funds, payments, ledger, events, work),
    *(audits, calibration, blobs, chain, health, metrics),
)


def create_app(context: Context, drive: Callable[[], AbstractContextManager[object]]) -> FastAPI:
    """`drive` is entered while the application serves: the stages, for the embedded form."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        watches = [asyncio.create_task(watch) for watch in (work.look_out(context), app.state.parked.keep())]
        try:
            with drive():
                yield
        finally:
            for watch in watches:
                watch.cancel()

    settings = context.settings
    app = FastAPI(
        title="gradmarket",
        summary="A marketplace for gradients: strangers' GPUs train your model and are paid per accepted gradient.",
        lifespan=lifespan,
        responses=problems.EVERYWHERE,
    )
    app.state.context = context
    app.state.wallets = Buckets(Rate(settings.wallet_rate, settings.wallet_burst))
    app.state.callers = auth.Callers()
    app.state.nonces = nonces.Nonces(context.signer)
    app.state.crowd = together.crowd_of(context)
    app.state.parked = parked.Parked(context)
    app.state.following = following.Following(context)
    app.state.statements = statements.Statements(context)
    app.state.metrics = kept.Kept[bytes]()
    app.state.stats = kept.Kept[Stats]()
    app.state.histories = kept.Recent[History]()
    app.state.standings = kept.Recent[Standing]()
    app.state.probe = health.Probe(context)
    problems.install(app)
    openapi.install(app)
    for door in DOORS:
        app.include_router(door.router)
    # the last added is the first that a request meets
    app.add_middleware(TokenFirst, context=context, callers=app.state.callers)
    app.add_middleware(BodyLimit, limit=settings.max_body_bytes, seconds=settings.body_s)
    app.add_middleware(RateLimit, context=context, callers=app.state.callers)
    app.add_middleware(Watch, meters=context.meters)
    return app
