"""What a feature may do beside the worker's kernel, which asks each of them by these names and knows none of theirs."""

from typing import ClassVar

from worker.markets.market_session import Shared
from worker.markets.scheduler import MarketSource


class WorkerFeature:
    """By default it does nothing. `worker.features.FEATURES` has them; `worker.run` alone imports it."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    """Names of the features that this one imports."""

    def market_source(self, shared: Shared) -> MarketSource | None:
        """Called once a session's parts are set up, before it joins a market; returns where else it finds markets."""
        return None
