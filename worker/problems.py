"""Errors of requests to the market and of downloads."""

import httpx

from gradmarket.market.errors import MarketError, Refused


class MarketProblem(MarketError):
    """The market refused."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{status}: {detail[:500]}")
        self.status = status


class MarketUnreachable(MarketError):
    """The market does not answer."""


class Untrusted(Refused):
    """What the market says about the chain does not hold."""


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


def problem(response: httpx.Response, body: bytes) -> MarketProblem:
    """Returns the error from RFC 9457 problem details, or from the plain body."""
    text = body.decode("utf-8", "replace")
    try:
        details = httpx.Response(response.status_code, content=body).json()
        text = str(details.get("detail") or details.get("title") or text)
    except (ValueError, AttributeError):
        text = text or response.reason_phrase
    return MarketProblem(response.status_code, text)
