"""A service on the session's chain, and tills of a test's own."""

from tests.api.conftest import posted, service
from tests.chain.conftest import chain_fixture, new_till, till_on

__all__ = ["chain_fixture", "new_till", "posted", "service", "till_on"]
