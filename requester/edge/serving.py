"""How uvicorn serves the application: with bounded patience, and believing nothing that a client says of itself."""

import uvicorn
from fastapi import FastAPI

from gradmarket.requester.edge.patience import patient
from gradmarket.requester.settings import Settings

MAX_HEADER_BYTES = 16 * 1024


def config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """Forwarded headers are left to api.callers, which knows the trusted proxies; uvicorn would believe loopback."""
    return uvicorn.Config(
        app,
        http=patient(settings.header_s, settings.silence_s),
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_graceful_shutdown=settings.drain_s,
    )
