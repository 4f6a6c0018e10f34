"""Units of work: `with begin(sessions) as work` writes, `with reading(sessions) as reader` only reads.

On SQLite, BEGIN IMMEDIATE admits one writer at a time. On PostgreSQL many write, and each first locks the rows that it
decides by (store.locks).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final, Protocol, TypeVar, cast

from sqlalchemy import Connection, Table, bindparam, func, insert, select
from sqlalchemy.orm.attributes import flag_modified

from gradmarket.market.terms import Units
from requester.notifier import job_topic
from requester.store.among import Texts
from requester.store.session import MovingSession, Sessions, features_in, is_shared
from requester.store.tables import Base, Earned, Job, JobEvent
from requester.store.transitions import Held, move_now

Entity = TypeVar("Entity", bound=Base)
Item = TypeVar("Item")


class Listener(Protocol):
    """The calls of a transaction to a feature (requester.feature)."""

    def events_recorded(self, work: "Work", events: Sequence[JobEvent]) -> None: ...

    def topped_up(self, work: "Work", job: Job, amount: Units, at: float) -> None: ...


def listeners_of(work: "Work") -> tuple[Listener, ...]:
    """Returns the features that a transaction notifies of its writes."""
    return cast(tuple[Listener, ...], work.session.info["features"])


class RowReader:
    """Reads rows within one transaction. Queries are in requester.store, and only these use `session`."""

    def __init__(self, session: MovingSession) -> None:
        self.session = session

    @property
    def shared(self) -> bool:
        """Whether others write while this transaction does: PostgreSQL."""
        return is_shared(self.session.get_bind())

    def get(self, table: type[Entity], key: Any) -> Entity | None:
        """Returns the row, from the transaction's rows if it is among them; None if missing."""
        return self.session.get(table, key)

    def known(self, table: type[Entity], key: Any) -> Entity | None:
        """Returns the row where the transaction has read it already."""
        row: Entity | None = self.session.identity_map.get(self.session.identity_key(table, key))
        return row

    def get_one(self, table: type[Entity], key: Any) -> Entity:
        """Like `get`; raises NoResultFound where the row is missing."""
        return self.session.get_one(table, key)


class Work(RowReader):
    """One writing transaction, with everything that happens in it and after its commit.

    Rows that it returns may be changed: they are written at the next flush. Their `state` changes by `move` alone.
    """

    def __init__(self, session: MovingSession) -> None:
        super().__init__(session)
        self.topics: set[str] = set()
        """Notified after the commit, never before it."""
        self.recorded: list[JobEvent | Earned] = []
        """Written at the transaction's end."""
        self._gathered: defaultdict[Callable[[Work, list[Any]], None], list[Any]] = defaultdict(list)

    def connection(self) -> Connection:
        return self.session.connection()

    def add(self, *rows: Base) -> None:
        self.session.add_all(rows)

    def flush(self) -> None:
        """Writes the changes so far; queries do so too, before they read."""
        self.session.flush()

    def write_alike(self, rows: Iterable[Base], *names: str) -> None:
        """Makes those of the rows that changed write these columns, too: rows that write the same share a statement."""
        for row in rows:
            if self.session.is_modified(row):
                for name in names:
                    flag_modified(row, name)

    def refresh(self, row: Base) -> None:
        self.session.refresh(row)

    def move(self, row: Held, new: StrEnum, **values: Any) -> None:
        """Moves a row that the transaction holds to `new`, with `values`; the next flush writes it.

        Raises IllegalTransition where the entity's table has no such step.
        """
        self.session.moves.add(row, new, values)

    def move_many(self, rows: Iterable[Held], new: StrEnum, **values: Any) -> None:
        """Moves several rows; those of one table that change in the same columns share one statement."""
        for row in rows:
            self.move(row, new, **values)

    def set_state_now(self, row: Base, new: StrEnum, **values: Any) -> bool:
        """Moves `row` to `new`, with `values`, at once by compare-and-set. False where another transaction moved it.

        Raises IllegalTransition where the entity's table has no such step.
        """
        self.flush()
        return move_now(self.connection(), row, new, values)

    def notify(self, *topics: str) -> None:
        """Requests a notification of these topics after the commit."""
        self.topics.update(topics)

    def record(self, row: JobEvent | Earned) -> None:
        """Queues an event, or an EARNED row, to be written at the transaction's end."""
        self.recorded.append(row)

    def gather(self, act: Callable[["Work", list[Item]], None], item: Item) -> None:
        """Calls `act` once, at the transaction's end, with all items gathered for it."""
        self._gathered[act].append(item)

    def act_on_gathered(self) -> None:
        for act, items in self._gathered.items():
            act(self, items)

    def one_at_a_time(self, *names: str) -> None:
        """Serializes transactions that name the same thing: only one runs at a time."""
        if names and self.shared:
            self.connection().execute(_IN_TURN, {"names": sorted(names)})

    def write_recorded(self) -> None:
        """Writes the queued rows, numbered in the order of commits: a reader that continues from a
        number misses none.
        """
        if self.recorded:
            self.flush()
            self.one_at_a_time(*{f"events of {row.job_id}" for row in self.recorded})
            for table in (JobEvent, Earned):
                recorded = [vars(row).items() for row in self.recorded if isinstance(row, table)]
                if rows := [{name: value for name, value in row if not name.startswith("_")} for row in recorded]:
                    self.connection().execute(_INSERTS[table], rows)


_INSERTS: Final = {table: insert(cast(Table, table.__table__)).inline() for table in (JobEvent, Earned)}
"""No caller asks for the numbers that the database gives these rows."""


_NAMES: Final = func.unnest(bindparam("names", type_=Texts)).column_valued("name")
_IN_TURN: Final = select(func.pg_advisory_xact_lock(func.hashtextextended(_NAMES, 0)))


@contextmanager
def begin_work(sessions: Sessions) -> Iterator[Work]:
    """Opens a transaction that writes: committed at the end, rolled back on an exception."""
    with sessions.begin() as session:
        work = Work(session)
        yield work
        work.act_on_gathered()
        if events := [row for row in work.recorded if isinstance(row, JobEvent)]:
            for feature in cast(tuple[Listener, ...], features_in(sessions)):
                feature.events_recorded(work, events)
        work.write_recorded()


@contextmanager
def open_reader(sessions: Sessions) -> Iterator[RowReader]:
    """Opens a read-only transaction that sees one moment's state, that of its first query; it waits for no writer."""
    with sessions(bind=sessions.kw["info"]["reading"]) as session:
        yield RowReader(session)


def record_event(work: Work, job_id: str, kind: str, at: float, **body: Any) -> None:
    work.record(JobEvent(job_id=job_id, kind=kind, body=body, at=at))
    work.notify(job_topic(job_id))
