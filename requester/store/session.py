"""Database transactions: `with begin(sessions) as session`.

On SQLite, BEGIN IMMEDIATE lets one write at a time. On PostgreSQL many do, and each first locks the rows that it
decides by (store.locks).
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from sqlalchemy import Engine, bindparam, create_engine, event, func, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.orm import Session, sessionmaker

from gradmarket.requester.store.among import Texts
from gradmarket.requester.store.tables import Earned, JobEvent
from gradmarket.requester.store.transitions import write_moves

Sessions = sessionmaker[Session]

BUSY_TIMEOUT_MS = 30_000
POOL_SIZE, POOL_OVERFLOW = 5, 15
"""Connections of one process to PostgreSQL: so many are kept open, and so many more opened when needed."""
UTF8: Final = {"client_encoding": "utf8"}
"""Set for every database: psycopg returns the texts of one in SQL_ASCII as bytes otherwise."""
RESTED_S: Final = 1.0
"""Seconds after which an idle connection is tested before use: the server may have been restarted."""


def connect(url: str) -> Engine:
    """Returns an engine for `sqlite:///path` or for `postgresql://…`, which psycopg 3 drives."""
    address = make_url(url)
    if address.get_backend_name() == "postgresql":
        driven = address.set(drivername="postgresql+psycopg")
        engine = create_engine(driven, connect_args=UTF8, pool_size=POOL_SIZE, max_overflow=POOL_OVERFLOW)
        event.listen(engine, "checkin", _rest)
        event.listen(engine, "checkout", _rise)
        return engine
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000, "check_same_thread": False})
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def _rest(_connection: Any, record: Any) -> None:
    record.info["rested_since"] = time.monotonic()


def _rise(connection: Any, record: Any, _fairy: Any) -> None:
    """Pings a connection that was idle for RESTED_S; others are not pinged, since a ping takes as long as a query."""
    if time.monotonic() - record.info.get("rested_since", time.monotonic()) < RESTED_S:
        return
    try:
        connection.execute("SELECT 1")
        connection.rollback()
    except psycopg.Error as error:
        raise DisconnectionError(str(error)) from error


def is_shared(bind: Any) -> bool:
    """Whether several transactions of the engine or connection write at the same time: PostgreSQL."""
    return bool(bind.dialect.name == "postgresql")


def _configure(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver would begin by itself, and too late to be IMMEDIATE
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    cursor.close()


def _begin(connection: Any) -> None:
    reading = connection.get_execution_options().get("reading", False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def sessions_of(engine: Engine) -> Sessions:
    """Returns a session factory; a session keeps each row until its end, so that no lookup by key reads it twice."""
    sessions = sessionmaker(engine, expire_on_commit=False)
    event.listen(sessions, "loaded_as_persistent", _keep)
    event.listen(sessions, "before_flush", write_moves)
    return sessions


def _keep(session: Session, row: object) -> None:
    session.info.setdefault("at hand", []).append(row)


@contextmanager
def begin(sessions: Sessions) -> Iterator[Session]:
    """Opens a transaction that writes: committed at the end, rolled back on an exception."""
    with sessions.begin() as session:
        yield session
        _write_recorded(session)


@contextmanager
def reading(sessions: Sessions) -> Iterator[Session]:
    """Opens a read-only transaction that sees one moment's state; it waits for no writer."""
    with sessions() as session:
        shared = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        session.connection(execution_options=shared if is_shared(session.get_bind()) else {"reading": True})
        yield session


def notify(session: Session, *topics: str) -> None:
    """Requests a notification of these topics after this transaction's commit, never before it."""
    session.info.setdefault("rings", set()).update(topics)


def rings(session: Session) -> set[str]:
    """Returns the topics that the transaction requested, and forgets them."""
    topics: set[str] = session.info.pop("rings", set())
    return topics


def record(session: Session, told: JobEvent | Earned) -> None:
    """Queues an event, or an EARNED row, to be written at the transaction's end."""
    session.info.setdefault("recorded", []).append(told)


def _write_recorded(session: Session) -> None:
    """Writes the queued rows, numbered in the order of commits: a reader that continues from a number misses none."""
    rows: list[JobEvent | Earned] = session.info.pop("recorded", [])
    if not rows:
        return
    session.flush()
    one_at_a_time(session, *{f"events of {row.job_id}" for row in rows})
    session.add_all(rows)


def one_at_a_time(session: Session, *names: str) -> None:
    """Lets transactions that name the same thing run only one after another."""
    if names and is_shared(session.get_bind()):
        session.connection().execute(_IN_TURN, {"names": sorted(names)})


_NAMES: Final = func.unnest(bindparam("names", type_=Texts)).column_valued("name")
_IN_TURN: Final = select(func.pg_advisory_xact_lock(func.hashtextextended(_NAMES, 0)))
