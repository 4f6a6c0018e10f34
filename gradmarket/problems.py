"""Errors of requests to the service.

MarketError
├── ServiceProblem         the service refused, with its reason and the fields concerned
├── ServiceUnreachable     the service does not answer
│   └── Silence            it took the request and sends nothing
└── Damaged                the bytes received do not match their digest
"""

from dataclasses import dataclass
from typing import Any

import httpx

from gradmarket.market.errors import MarketError


@dataclass(frozen=True)
class Field:
    """One field of a request, and what is wrong with it."""

    name: str
    detail: str


class ServiceProblem(MarketError):
    """The service refused."""

    def __init__(self, status: int, detail: str, fields: tuple[Field, ...] = ()) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail
        self.fields = fields


class ServiceUnreachable(MarketError):
    """The service does not answer."""


class Silence(ServiceUnreachable):
    """The service says nothing."""


class Damaged(MarketError):
    """These are not the bytes that were asked for."""


def problem(response: httpx.Response) -> ServiceProblem:
    """Returns the error from RFC 9457 problem details, or from the plain body, which must have been read."""
    try:
        details: Any = response.json()
    except ValueError:
        details = None
    if not isinstance(details, dict):
        return ServiceProblem(response.status_code, response.text[:500] or response.reason_phrase)
    fields = tuple(Field(str(entry.get("field")), str(entry.get("detail"))) for entry in details.get("errors", ()))
    return ServiceProblem(response.status_code, str(details.get("detail") or details.get("title")), fields)
