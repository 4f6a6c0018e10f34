"""A service on the session's chain, and a worker's context."""

from tests.api.conftest import posted, service
from tests.worker.conftest import (
    blobs,
    chain_job,
    fake_market,
    make_context,
    publication,
    published,
    runner,
    worker_key,
)

__all__ = [
    "blobs",
    "chain_job",
    "fake_market",
    "make_context",
    "posted",
    "publication",
    "published",
    "runner",
    "service",
    "worker_key",
]
