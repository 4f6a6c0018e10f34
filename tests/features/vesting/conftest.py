"""Tills of a test's own."""

from tests.chain.conftest import chain_fixture, new_till, till_on

__all__ = ["chain_fixture", "new_till", "till_on"]
