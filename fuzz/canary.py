"""Acts forbidden to readers, by the interpreter's audit events (PEP 578): open, import, compile, run, connect, pickle.

A hook cannot be removed, so this is for a child alone.
"""

import sys
from pathlib import Path
from typing import Any, Final

import gradmarket.market

HARMLESS: Final = frozenset(
    {"object.__getattr__", "object.__setattr__", "object.__delattr__", "sys._getframe", "builtins.id"}
)
"""Attributes beyond a stranger's bytes: those of frames and functions that typing and pydantic read, and the names
that torch gives its objects."""
LISTED: Final = frozenset({"os.listdir", "os.scandir"})
OURS: Final = str(Path(gradmarket.market.__path__[0]).resolve())
"""Where plug-ins are looked up by name."""


class Canary:
    """Notes, while it watches, every event but the harmless ones."""

    def __init__(self) -> None:
        self.watching = False
        self.events: list[str] = []
        sys.addaudithook(self._record_event)

    def drain_events(self) -> list[str]:
        """Returns the events since the last call."""
        events, self.events = self.events, []
        return events

    def _record_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.watching and event not in HARMLESS and not (event in LISTED and str(arguments[0]).startswith(OURS)):
            self.events.append(f"{event}{arguments!r}"[:200])
