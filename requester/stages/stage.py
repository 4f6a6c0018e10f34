"""The interface that the engine expects of a stage."""

from collections.abc import Sequence
from typing import Protocol

from requester.context import Context
from requester.store.work import RowReader


class Stage(Protocol):
    """A stage, which is a module of this folder."""

    TOPIC: str
    """The notification topic that says that rows may be ready."""

    def ready(self, reader: RowReader, now: float, /) -> Sequence[str]:
        """Returns a limited number of ids of rows that `run` can move, the oldest first."""

    def run(self, context: Context, row_id: str, /) -> float | None:
        """Moves one row on if that is still possible; returns in how many seconds to try again, or None."""
