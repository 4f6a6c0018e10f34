"""Errors of what the market says."""

from gradmarket.market.errors import Refused


class Untrusted(Refused):
    """What the market says about the chain does not hold."""
