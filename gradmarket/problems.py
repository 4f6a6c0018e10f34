"""What the service answered instead of what was asked for.

MarketError
├── Problem        the service refused, with its reason and the fields it is about
├── Unreachable    the service does not answer
│   └── Silence    it took the request and says nothing
└── Damaged        what came is not what its digest says
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
    """RFC 9457 problem details, or what else stands in the body, which has been read."""
    try:
        told: Any = response.json()
    except ValueError:
        told = None
    if not isinstance(told, dict):
        return ServiceProblem(response.status_code, response.text[:500] or response.reason_phrase)
    fields = tuple(Field(str(entry.get("field")), str(entry.get("detail"))) for entry in told.get("errors", ()))
    return ServiceProblem(response.status_code, str(told.get("detail") or told.get("title")), fields)
