"""How this product reaches others: one policy of proxies, trust and time for every connection that it opens.

Every download fails by one of these errors.
"""

from gradmarket.market.errors import MarketError, Refused


class DownloadRefused(Refused):
    """The download was refused."""


class DownloadFailed(MarketError):
    """The download did not succeed; it may later."""


class PartitionUnfit(MarketError):
    """A partition cannot be used."""

    def __init__(self, partition: str, cause: MarketError) -> None:
        super().__init__(f"{partition[:200]}: {cause}")
        self.partition = partition
        self.cause = cause
