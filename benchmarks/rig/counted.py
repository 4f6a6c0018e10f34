"""A service that counts its database statements: `python -m benchmarks.rig.counted FILE serve …`.

SIGUSR1 writes the counts to FILE as JSON and restarts them: statements and transactions by caller.
"""

import json
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from sqlalchemy import Engine, event

from gradmarket.cli import app
from requester import context
from requester.store import session, work

ROOM = Path(context.__file__).parent
PASSED_OVER = {session.__file__, work.__file__, context.__file__, str(Path(context.__file__).with_name("meters.py"))}
"""Files through which everybody comes to the database."""


class Counts:
    """`statements` by caller and the statement's first words; `transactions` by the caller of their first."""

    def __init__(self) -> None:
        self.statements: Counter[str] = Counter()
        self.transactions: Counter[str] = Counter()
        self._begun: dict[int, str] = {}
        event.listen(Engine, "before_cursor_execute", self._statement)
        event.listen(Engine, "commit", self._ended)
        event.listen(Engine, "rollback", self._ended)

    def write(self, file: Path) -> None:
        counts = {"statements": dict(self.statements), "transactions": dict(self.transactions)}
        self.statements, self.transactions = Counter(), Counter()
        beside = file.with_suffix(".new")
        beside.write_text(json.dumps(counts))
        beside.replace(file)

    def _statement(self, connection: Any, _cursor: object, statement: str, *_more: object) -> None:
        caller = _caller()
        self._begun.setdefault(id(connection), caller)
        self.statements[f"{caller}: {_words(statement)}"] += 1

    def _ended(self, connection: Any) -> None:
        caller = self._begun.pop(id(connection), None)
        if caller is not None:
            self.transactions[caller] += 1


def _words(statement: str) -> str:
    """Returns the verb and the table of a statement."""
    words = statement.replace("\n", " ").split()
    verb = words[0]
    if verb == "SELECT":
        table = words[words.index("FROM") + 1] if "FROM" in words else " ".join(words[1:3])
    else:
        table = words[1 if verb == "UPDATE" else min(2, len(words) - 1)]
    return f"{verb} {table}"[:60]


def _caller() -> str:
    """The nearest two functions of the requester's, the outer one first."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(str(ROOM)) and file not in PASSED_OVER:
            found.append(f"{Path(file).stem}.{frame.f_code.co_name}")
        frame = frame.f_back
    return f"{found[-1]} > {found[0]}" if found else "none"


if __name__ == "__main__":
    counts, place = Counts(), Path(sys.argv.pop(1))
    signal.signal(signal.SIGUSR1, lambda *_: counts.write(place))
    app()
