"""A service on the session's chain, and tills of a test's own."""

from tests.api.conftest import posted, service
from tests.chain.conftest import chain_fixture, new_till, own_till

__all__ = ["chain_fixture", "new_till", "own_till", "posted", "service"]
