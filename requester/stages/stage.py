"""What the engine needs to know of a stage."""

from collections.abc import Sequence
from typing import Protocol

from sqlalchemy.orm import Session

from gradmarket.requester.context import Context


class Stage(Protocol):
    """A module of this folder."""

    TOPIC: str
    """Rings when there may be something ready."""

    def ready(self, session: Session, now: float, /) -> Sequence[str]:
        """Ids of rows that `run` can move; the oldest first, not too many."""

    def run(self, context: Context, row_id: str, /) -> float | None:
        """Moves one row on, if it still can be; or says in how many seconds to try again."""
