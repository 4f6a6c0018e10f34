"""Engines that one test market passes to the next, with all statements compiled, and their database's path.

An engine compiles each statement once. All of a market's take a quarter of a second, and a short test takes a half.
"""

from collections import defaultdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Final

from sqlalchemy import Engine

from requester.store.session import is_shared, open_engine
from tests.databases import NewDatabase, in_memory

_PLACES: Final[list[Path]] = []
"""Folders of databases that nobody uses."""
_ENGINES: Final[dict[str, list[Engine]]] = defaultdict(list)
"""Engines with nothing open, by the address of their database."""


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(dir=in_memory())


class LentDatabase:
    """A new database, at a path that an earlier market may have had."""

    def __init__(self, new: NewDatabase) -> None:
        self._place = _PLACES.pop() if _PLACES else Path(mkdtemp(dir=_folder().name))
        for path in self._place.iterdir():
            path.unlink()
        self.url = new(self._place)

    def engine(self) -> Engine:
        idle = _ENGINES[self.url]
        return idle.pop() if idle else open_engine(self.url)

    def take_back(self, engine: Engine) -> None:
        """Closes the engine's connections. PostgreSQL's is not lent again: each database there has its own name."""
        engine.dispose()
        if not is_shared(engine):
            _ENGINES[self.url].append(engine)

    def end(self) -> None:
        """Nobody uses the database any more."""
        _PLACES.append(self._place)
