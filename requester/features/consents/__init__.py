"""Payout keys take their consents back; a consent itself comes with its worker's sign-in."""

from requester.feature import Feature
from requester.features.consents import consent_routes


class ConsentsFeature(Feature):
    name = "consents"
    needs = ("leftovers",)
    routers = (consent_routes.router,)
