"""Skips stages that found nothing until a table that they read is written or time passes.

The same holds of a draw that leased nothing: it is of the rows and the clock alone.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from sqlalchemy import Engine, event

from requester.context import Context
from requester.engine import Stage
from requester.stages import assign
from requester.store.tables import Base

NAMES = frozenset(Base.metadata.tables)


class Rest:
    """Follows all statements of the engines that it watches; `ready` of a stage is of the rows and the clock alone."""

    def __init__(self) -> None:
        self._writes: Counter[str] = Counter()
        """Commits that wrote to a table."""
        self._reads: set[str] = set()
        self._idle: dict[Stage, tuple[float, dict[str, int]]] = {}
        self._vain: dict[tuple[Stage, str], tuple[float, float, dict[str, int]]] = {}
        """Runs that only waited: the clock, the seconds that they ask for, and the commits to their tables."""

    def watch(self, engine: Engine) -> None:
        for name, hear in self._listeners.items():
            event.listen(engine, name, hear)

    def leave(self, engine: Engine) -> None:
        for name, hear in self._listeners.items():
            event.remove(engine, name, hear)

    @property
    def _listeners(self) -> dict[str, Callable[..., None]]:
        return {"before_cursor_execute": self._record_statement, "commit": self._committed, "rollback": self._undone}

    def lasts(self, stage: Stage, now: float) -> bool:
        since, writes = self._idle.get(stage, (None, {}))
        return since == now and not self._changed(writes)

    @contextmanager
    def recording_reads(self, stage: Stage, now: float, found: list[tuple[Stage, str]]) -> Iterator[None]:
        """Around the stage's question, which adds to `found`: where it adds nothing, it need not be asked again."""
        before, self._reads = len(found), set()
        seen = dict(self._writes)
        yield
        self._idle.pop(stage, None)
        if len(found) == before:
            self._idle[stage] = now, {table: seen.get(table, 0) for table in self._reads}

    def ran(self, stage: Stage, row_id: str, now: float, context: Context) -> float | None:
        """Runs the stage on the row, unless it is a draw that would wait again; returns its result."""
        if stage is not assign:
            return stage.run(context, row_id)
        since, wait, writes = self._vain.pop((stage, row_id), (None, 0.0, {}))
        if since != now or self._changed(writes):
            before, self._reads = dict(self._writes), set()
            done = stage.run(context, row_id)
            if done is None or before != self._writes or now != context.clock():
                return done
            wait, writes = done, {table: before.get(table, 0) for table in self._reads}
        self._vain[stage, row_id] = now, wait, writes
        return wait

    def _changed(self, writes: dict[str, int]) -> bool:
        return any(self._writes[table] != seen for table, seen in writes.items())

    def _record_statement(self, connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("SELECT"):
            self._reads |= tables(statement)
        else:
            connection.info.setdefault("written", set()).update(tables(statement))

    def _committed(self, connection: Any) -> None:
        self._writes.update(connection.info.pop("written", ()))

    def _undone(self, connection: Any) -> None:
        connection.info.pop("written", None)


@cache
def tables(statement: str) -> frozenset[str]:
    """That it names."""
    return NAMES & frozenset(re.findall(r"\w+", statement))
