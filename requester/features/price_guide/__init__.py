"""Price guidance: what other jobs pay a GFLOP, and which workers took how little."""

from requester.feature import Feature
from requester.features.price_guide import paid_prices


class PriceGuideFeature(Feature):
    name = "price_guide"
    routers = (paid_prices.router,)
