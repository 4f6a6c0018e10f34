"""Markets that announce their jobs on the chain, beside those that the owner names."""

from worker.feature import WorkerFeature
from worker.features.discovery.announced_markets import AnnouncedMarkets
from worker.markets.market_session import Shared


class DiscoveryFeature(WorkerFeature):
    name = "discovery"
    serves = frozenset({"discover"})

    def market_source(self, shared: Shared) -> AnnouncedMarkets | None:
        return AnnouncedMarkets(shared) if shared.settings.discover else None
