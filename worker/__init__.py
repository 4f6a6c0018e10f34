"""The worker. Its root has the error of a market that cannot be trusted."""

from gradmarket.market.errors import Refused


class Untrusted(Refused):
    """What the market says about the chain does not hold."""
