"""A market in one thread, as tests of the requester have it."""

from tests.requester.conftest import floor_ledger, new_floor

__all__ = ["floor_ledger", "new_floor"]
