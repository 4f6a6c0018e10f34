"""The worker's log for its owner: sentences, or one JSON object per line, with the time where it is a log of work."""

import json
import sys
import time
from typing import Any, Final, TextIO

from gradmarket.market.printable import replace_controls

LONGEST: Final = 4000
"""Characters of a text: a market's names may have millions."""


class Journal:
    """Writes log entries; with `as_json` each is `{"event": …, "text": …, …}`.

    `timed`: with the time of day before each sentence, or Unix seconds as `at`.
    """

    def __init__(self, as_json: bool = False, stream: TextIO | None = None, timed: bool = False) -> None:
        self._as_json = as_json
        self._timed = timed
        self._stream = stream or sys.stdout
        self._last: dict[str, str] = {}

    def report(self, event: str, text: str, **facts: Any) -> None:
        line = self._format_entry(event, text, facts)
        self._stream.write(
            f"{self._add_time(line)}\n"
        )  # one write: a container's log collector takes each write for a line
        self._stream.flush()
        self._last.clear()

    def once(self, event: str, text: str, **facts: Any) -> None:
        """Logs the entry, unless the last of its event was the same and no other was logged since then."""
        line = self._format_entry(event, text, facts)
        if line == self._last.get(event):
            return
        others = dict(self._last)
        self.report(event, text, **facts)
        self._last = others | {event: line}

    def _add_time(self, line: str) -> str:
        if not self._timed:
            return line
        return f'{line[:-1]}, "at": {time.time():.3f}}}' if self._as_json else f"{time.strftime('%H:%M:%S')} {line}"

    def _format_entry(self, event: str, text: str, facts: dict[str, Any]) -> str:
        """Returns one line. Replaces unprintable characters, and those that the stream's encoding lacks: untrusted text
        must neither control the terminal nor end the worker.

        JSON escapes them.
        """
        if self._as_json:
            return json.dumps(
                {name: _shorten(value) for name, value in {"event": event, "text": text, **facts}.items()}
            )
        shown, encoding = replace_controls(_shorten(text)), self._stream.encoding
        return shown.encode(encoding or "utf-8", "replace").decode(encoding or "utf-8")


def _shorten(value: Any) -> Any:
    return f"{value[:LONGEST]}…" if isinstance(value, str) and len(value) > LONGEST else value
