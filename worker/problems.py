"""Errors of requests to the market."""

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


def problem(response: httpx.Response, body: bytes) -> MarketProblem:
    """Returns the error from RFC 9457 problem details, or from the plain body."""
    text = body.decode("utf-8", "replace")
    try:
        details = httpx.Response(response.status_code, content=body).json()
        text = str(details.get("detail") or details.get("title") or text)
    except (ValueError, AttributeError):
        text = text or response.reason_phrase
    return MarketProblem(response.status_code, text)
