"""A worker's runner, and a published job that it computes."""

from tests.worker.conftest import blobs, fetched_digests, make_executor, publication, published, runner

__all__ = ["blobs", "fetched_digests", "make_executor", "publication", "published", "runner"]
