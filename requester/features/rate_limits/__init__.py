"""Limits on how often an address and a token may ask."""

from fastapi import FastAPI

from requester.context import Context
from requester.feature import Feature
from requester.features.rate_limits.rate_limit import RateLimit


class RateLimitsFeature(Feature):
    name = "rate_limits"

    def limit_requests(self, app: FastAPI, context: Context) -> None:
        app.add_middleware(RateLimit, context=context, callers=app.state.callers)
