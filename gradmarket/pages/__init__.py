"""Shared parts of the service's page and a worker's page: rendering, frame, styles, vendored scripts.

Every value is escaped. Pages load nothing from elsewhere and cannot be framed.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import Response

from gradmarket.market.printable import printable_lines

HERE: Final = Path(__file__).parent
ASSETS: Final = HERE / "assets"
NOSNIFF: Final = [("X-Content-Type-Options", "nosniff")]
"""A server's headers of every answer: no browser takes a stranger's bytes for a page or a script."""


def build_security_policy(connect: str = "") -> str:
    """Returns the Content-Security-Policy; `connect` is one more origin that scripts may ask: a local chain's node."""
    rules = {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "connect-src": f"'self' {connect}".strip(),
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _make_printable(value: object) -> object:
    """Returns the value; a text without the characters by which a stranger could disturb the text beside it."""
    return printable_lines(value) if type(value) is str else value


class Templates:
    """The templates of one folder, which may extend `frame.html`; `base` is the path that they are reached under."""

    def __init__(self, folder: Path) -> None:
        self._environment = Environment(
            loader=FileSystemLoader([folder, HERE / "templates"]),
            autoescape=True,
            finalize=_make_printable,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(FILTERS)
        self._environment.globals.update(share=compute_percent, base="")

    def render(self, template: str, **values: object) -> str:
        return self._environment.get_template(template).render(values)


def build_html_response(text: str, connect: str = "", status: int = 200) -> Response:
    headers = {
        "Content-Security-Policy": build_security_policy(connect),
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return Response(text, status, headers, "text/html")


def shorten_text(text: str, most: int = 12) -> str:
    """Shortens an address, id or digest in the middle."""
    return text if len(text) <= most else f"{text[: most - 5]}…{text[-4:]}"


def format_duration(seconds: float | None) -> str:
    """Writes a duration in its largest unit: "40 s", "12 min", "3.5 h", "2 d"; a dash where it is not known."""
    if seconds is None:
        return "—"
    for size, name in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {name}"
    return f"{max(0.0, seconds):.0f} s"


def format_utc_time(seconds: float | None) -> str:
    """Writes a time as ISO 8601 in UTC, to the second."""
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_bytes(count: float | None) -> str:
    """Writes bytes in decimal units."""
    if count is None:
        return "—"
    for power, name in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if count >= 10**power:
            return f"{count / 10**power:.3g} {name}"
    return f"{count:.0f} B"


def compute_percent(part: float, whole: float) -> float:
    """Returns a share in percent; 0 of nothing."""
    return 100 * part / whole if whole else 0.0


FILTERS: Final[Mapping[str, Any]] = {
    "short": shorten_text,
    "span": format_duration,
    "moment": format_utc_time,
    "size": format_bytes,
}
