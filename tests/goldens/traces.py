"""The transactions of whole jobs on a market of one thread: each one's queries, writes and notifications, in order.

Nothing else sees a lock that is taken in another order, one more query in a poll, or an event in another transaction.
A line is one transaction. The same one again directly after it, or one that only reads and was there before, is left
out.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, event

from requester.store.work import Work
from tests.databases import new_sqlite
from tests.features.private.test_private_jobs import holder, listed
from tests.kit.behaviour import NOISE
from tests.kit.unchained import unchained
from tests.requester.market_auditor import SimAuditor
from tests.requester.market_fixture import MarketFixture

_COLUMNS: Final = re.compile(r"^SELECT (?:DISTINCT )?[\w.\"]+(?: AS \w+)?(?:, [\w.\"]+(?: AS \w+)?)+ (?=FROM)")
_LISTS: Final = re.compile(r"\(\?(?:, \?)+\)")
_INSERTED: Final = re.compile(r"^(INSERT INTO \w+) .*")
_WRITES: Final = re.compile(r"(?:^|; )(?:INSERT|UPDATE|DELETE|event|locks|notifies) ")
_NAMES: Final = ((re.compile(r"0x[0-9a-fA-F]{40}"), "WORKER"), (re.compile(r"\b[0-9a-f]{16,}(?:-\d+)*\b"), "ID"))


class TransactionTrace:
    """The transactions of a market from `recording` on, as lines of text."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._open: dict[int, list[str]] = {}

    @contextmanager
    def recording(self, market: MarketFixture) -> Iterator[None]:
        engine, notify, in_turn = market.context.sessions.kw["bind"], market.context.notifier.notify, Work.one_at_a_time

        def record_notification(topics: Sequence[str]) -> None:
            if topics:
                self._add(f"notifies {', '.join(sorted({_named(topic) for topic in topics}))}")
            notify(topics)

        def take_turn(work: Work, *names: str) -> None:
            self._open.setdefault(id(work.connection()), []).append(f"locks {', '.join(sorted(map(_named, names)))}")
            in_turn(work, *names)

        listeners = {
            "before_cursor_execute": self._execute,
            "commit": lambda connection: self._end(connection, "commit"),
            "rollback": lambda connection: self._end(connection, "rollback"),
        }
        for name, listener in listeners.items():
            event.listen(engine, name, listener)
        market.context.notifier.notify = record_notification  # type: ignore[method-assign,assignment]
        Work.one_at_a_time = take_turn  # type: ignore[method-assign]
        try:
            yield
        finally:
            Work.one_at_a_time = in_turn  # type: ignore[method-assign]
            market.context.notifier.notify = notify  # type: ignore[method-assign]
            for name, listener in listeners.items():
                event.remove(engine, name, listener)

    def _execute(self, connection: Connection, _cursor: Any, statement: str, given: Any, *_others: Any) -> None:
        text = _normalised(statement)
        if text.startswith("INSERT INTO events"):
            text = f"event {', '.join(_kinds(statement, given))}"
        self._open.setdefault(id(connection), []).append(text)

    def _end(self, connection: Connection, how: str) -> None:
        if statements := self._open.pop(id(connection), []):
            self._add("; ".join([*statements, how]))

    def _add(self, line: str) -> None:
        repeated = bool(self.lines) and self.lines[-1] == line
        if not repeated and (_WRITES.search(line) or line not in self.lines):
            self.lines.append(line)


def _normalised(statement: str) -> str:
    text = " ".join(statement.split())
    text = _LISTS.sub("(?…)", _COLUMNS.sub("SELECT … ", text))
    return _INSERTED.sub(r"\1", text)


def _kinds(statement: str, given: Any) -> list[str]:
    """The kinds of the events that a statement inserts."""
    columns = [name.strip() for name in statement[statement.index("(") + 1 : statement.index(")")].split(",")]
    place, rows = columns.index("kind"), given if isinstance(given, list) else [given]
    return [row[start + place] for row in rows for start in range(0, len(row) - place, len(columns))]


def _named(text: str) -> str:
    for pattern, name in _NAMES:
        text = pattern.sub(name, text)
    return text


def _plain(folder: Path) -> MarketFixture:
    market = MarketFixture(folder, unchained(), new_sqlite, rounds=2, name="traced plain")
    market.worker(NOISE), market.worker(), market.worker()
    return market


def _audited(folder: Path) -> MarketFixture:
    market = MarketFixture(folder, unchained(), new_sqlite, rounds=2, name="traced audits", audit={"probability": 1.0})
    market.worker(), market.worker(), market.worker()
    return market


def _private(folder: Path) -> MarketFixture:
    more = {"data": listed(3), "tasks_per_round": 3, "name": "traced private"}
    market = MarketFixture(folder, unchained(), new_sqlite, rounds=2, **more)
    for _ in range(3):
        holder(market, rows=10)
    return market


def _play_audited(market: MarketFixture) -> None:
    SimAuditor(market).play()


JOBS: Final[dict[str, tuple[Callable[[Path], MarketFixture], Callable[[MarketFixture], object]]]] = {
    "plain": (_plain, MarketFixture.play),
    "audited": (_audited, _play_audited),
    "private": (_private, MarketFixture.play),
}
"""By name: a market with a job and its workers, and how the job is played to its end."""


def trace_job(name: str, folder: Path) -> list[str]:
    """Returns the transactions of the job from its first poll to its end. A second run in a process has its specs."""
    begin, play = JOBS[name]
    market, trace = begin(folder), TransactionTrace()
    try:
        with trace.recording(market):
            play(market)
        if market.state() != "finished":
            raise RuntimeError(f"the {name} job is {market.state()}")
    finally:
        market.close()
    return trace.lines
