"""Errors of requests to a market's service.

MarketError
├── ServiceProblem         the service refused, with its reason and the fields concerned
├── ServiceUnreachable     the service does not answer
│   ├── Silence            it took the request and sends nothing
│   ├── CutOff             the connection closed before the requested wait was over
│   └── CertificateRefused its certificate is not trusted
└── Damaged                the bytes received do not match their digest
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from gradmarket.market.errors import MarketError
from gradmarket.market.printable import replace_controls

LONGEST_DETAIL: Final = 500


@dataclass(frozen=True)
class Field:
    """One field of a request, and its fault."""

    name: str
    detail: str


class ServiceProblem(MarketError):
    """The service refused."""

    def __init__(self, status: int, detail: str, fields: tuple[Field, ...] = (), remedy: str = "") -> None:
        detail = replace_controls(detail[:LONGEST_DETAIL], " ")
        super().__init__(f"{status}: {detail}", replace_controls(remedy[:LONGEST_DETAIL], " "))
        self.status = status
        self.detail = detail
        self.fields = fields


class ServiceUnreachable(MarketError):
    """The service does not answer."""


class Silence(ServiceUnreachable):
    """The service sends no answer."""


class CutOff(ServiceUnreachable):
    """The connection or a proxy closed before the wait that was requested from the service was over."""


class CertificateRefused(ServiceUnreachable):
    """The service cannot be trusted."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, "name the file of the authority that signed it (PEM) in SSL_CERT_FILE")


class Damaged(MarketError):
    """These are not the requested bytes."""


def parse_problem(status: int, reason: str, body: bytes) -> ServiceProblem:
    """Returns the error from RFC 9457 problem details, or from the plain body, or else with the status's `reason`."""
    text = body.decode("utf-8", "replace")
    try:
        details: Any = json.loads(text)
    except (ValueError, RecursionError):
        details = None
    if not isinstance(details, dict):
        return ServiceProblem(status, text or reason)
    listed = details.get("errors")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    fields = tuple(Field(str(entry.get("field")), str(entry.get("detail"))) for entry in entries)
    detail, remedy = (str(details.get(name) or "") for name in ("detail", "remedy"))
    return ServiceProblem(status, detail or str(details.get("title") or text), fields, remedy)
