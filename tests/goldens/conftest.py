"""A market in one thread, as tests of the requester have it."""

from tests.requester.conftest import market_ledger, new_market

__all__ = ["market_ledger", "new_market"]
