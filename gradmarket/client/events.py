"""Server-sent events (WHATWG HTML, 9.2), as far as a job's stream uses them."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ServerSentEvent:
    id: int
    kind: str
    body: dict[str, Any]


def parse_events(lines: Iterable[str]) -> Iterator[ServerSentEvent]:
    """Yields the events of the stream's lines; skips comments, which keep the connection open."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
        elif not line:
            if "data" in fields:
                yield ServerSentEvent(int(fields["id"]), fields["event"], json.loads(fields["data"]))
            fields = {}
