"""Further API tokens, beside the service's own."""

from requester.feature import Feature
from requester.features.api_tokens import token_routes


class ApiTokensFeature(Feature):
    name = "api_tokens"
    routers = (token_routes.router,)
