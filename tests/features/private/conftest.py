"""A worker's runner, and a published job that it computes."""

from tests.worker.conftest import asked, blobs, make_bench, publication, published, runner

__all__ = ["asked", "blobs", "make_bench", "publication", "published", "runner"]
