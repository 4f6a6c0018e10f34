"""The worker. Its root has the error of a market that cannot be trusted."""

from gradmarket.market.errors import Refused


class Untrusted(Refused):
    """The market's statements about the chain do not hold."""
