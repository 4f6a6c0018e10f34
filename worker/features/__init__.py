"""Features: each folder is one. Delete it and its line here, and it is gone."""

from typing import Final

from worker.feature import WorkerFeature
from worker.features.discovery import DiscoveryFeature

FEATURES: Final[tuple[WorkerFeature, ...]] = (
    DiscoveryFeature(),
)  # fmt: skip
"""In the order in which they are asked (worker.feature). Imported by worker.run alone."""
