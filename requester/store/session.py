"""One transaction: `with begin(sessions) as session`. SQLite writes are serialised by BEGIN IMMEDIATE."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.orm import Session, sessionmaker

Sessions = sessionmaker[Session]

BUSY_TIMEOUT_MS = 30_000


def connect(url: str) -> Engine:
    """An engine for `sqlite:///path` or `postgresql+psycopg://…`."""
    if not url.startswith("sqlite"):
        return create_engine(url, pool_pre_ping=True, pool_size=20, max_overflow=20)
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000, "check_same_thread": False})
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


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
    return sessionmaker(engine, expire_on_commit=False)


@contextmanager
def begin(sessions: Sessions) -> Iterator[Session]:
    """A transaction that writes: committed at the end, rolled back on an exception."""
    with sessions.begin() as session:
        yield session


@contextmanager
def reading(sessions: Sessions) -> Iterator[Session]:
    """A transaction that only reads: on SQLite it waits for no writer."""
    with sessions() as session:
        session.connection(execution_options={"reading": True})
        yield session


def ring(session: Session, *topics: str) -> None:
    """Asks for a ring after this transaction's commit, never before it."""
    session.info.setdefault("rings", set()).update(topics)


def rings(session: Session) -> set[str]:
    """What the transaction rang for; asked once, after the commit."""
    asked: set[str] = session.info.pop("rings", set())
    return asked
