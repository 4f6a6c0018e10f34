"""One policy of proxies, trust and time limits for every connection that this product opens.

Every download fails by one of these errors, and each request names the release of its side.
"""

from functools import cache
from importlib.metadata import version
from typing import Final

from gradmarket.market import release
from gradmarket.market.errors import MarketError, Refused

MAX_ANSWER: Final = 16 * 2**20
"""Bytes of one JSON answer; a hostile service must not fill the memory."""
MOST_VALUES: Final = 400_000
"""Values of one JSON answer, about: each that is wrong takes a kilobyte."""


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


@cache
def own_version() -> str:
    return version("gradmarket")


@cache
def own_header() -> tuple[str, str]:
    """Returns the name and value of the header on each request of a worker and each answer of a service."""
    return release.HEADER, release.write_header(own_version())


def check_release(header: str | None, other: str, ours: str) -> None:
    """Raises OtherRelease where the other side's header names another protocol; `whose` and `ours` name the sides."""
    release.check_release(header, other, ours, own_version())
