"""Engines and sessions of the database; transactions are opened in store.work."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from pydantic_core import from_json
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.orm import Session, sessionmaker

from requester.store.transitions import Moves

BUSY_TIMEOUT_MS = 30_000
POOL_SIZE, POOL_OVERFLOW = 5, 15
"""Connections of one process to PostgreSQL: the number kept open, and the number opened beyond it when needed."""
UTF8: Final = {"client_encoding": "utf8"}
"""Set for every database: psycopg returns the texts of one in SQL_ASCII as bytes otherwise."""
PLANNED_ONCE: Final = "SET plan_cache_mode = force_generic_plan"
"""Otherwise PostgreSQL plans a prepared statement anew for each list among its parameters: a fifth of its work."""
RESTED_S: Final = 1.0
"""Seconds after which an idle connection is tested before use: the server may have been restarted."""


def open_engine(url: str) -> Engine:
    """Returns an engine for `sqlite:///path` or for `postgresql://…`, which psycopg 3 drives."""
    address = make_url(url)
    if address.get_backend_name() == "postgresql":
        driven = address.set(drivername="postgresql+psycopg")
        pool = {"pool_size": POOL_SIZE, "max_overflow": POOL_OVERFLOW}
        engine = create_engine(driven, connect_args=UTF8, json_deserializer=_parse_json, **pool)
        cursor = _build_lean_cursor(engine.dialect.loaded_dbapi)
        event.listen(engine, "connect", lambda connection, _record: setattr(connection, "cursor_factory", cursor))
        event.listen(engine, "connect", _plan_once)
        event.listen(engine, "checkin", lambda _, record: record.info.update(rested_since=time.monotonic()))
        event.listen(engine, "checkout", _build_ping(engine.dialect.loaded_dbapi.Error))
        return engine
    lasting = {"timeout": BUSY_TIMEOUT_MS / 1000, "check_same_thread": False}
    engine = create_engine(url, connect_args=lasting, json_deserializer=_parse_json)
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _parse_json(text: str | bytes) -> Any:
    """Parses a column's JSON in a third of the time that `json` takes, and leaves to that the rest: lone surrogates."""
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)


def _build_lean_cursor(driver: Any) -> type[Any]:
    """Returns psycopg's cursor with a description of names and types alone: each execution builds one anew, for all
    columns, and SQLAlchemy reads that of a statement's first.
    """

    def description(cursor: Any) -> list[tuple[str, int]] | None:
        found = cursor.pgresult
        if found is None or found.status != driver.pq.ExecStatus.TUPLES_OK:
            return None
        return [(found.fname(place).decode(), found.ftype(place)) for place in range(found.nfields)]

    return type("LeanCursor", (driver.Cursor,), {"description": property(description)})


def _plan_once(connection: Any, _record: Any) -> None:
    connection.execute(PLANNED_ONCE)
    connection.commit()


def _build_ping(kind: type[Exception]) -> Callable[[Any, Any, Any], None]:
    """Returns a listener that pings a connection idle for RESTED_S; `kind` is the driver's error.

    Others are not pinged, since a ping takes as long as a query.
    """

    def rise(connection: Any, record: Any, _fairy: Any) -> None:
        if time.monotonic() - record.info.get("rested_since", time.monotonic()) < RESTED_S:
            return
        try:
            connection.execute("SELECT 1")
            connection.rollback()
        except kind as error:
            raise DisconnectionError(str(error)) from error

    return rise


def is_shared(bind: Any) -> bool:
    """Whether several transactions of the engine or connection write at the same time: PostgreSQL."""
    return bool(bind.dialect.name == "postgresql")


def _configure_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver would begin by itself, and too late to be IMMEDIATE
    connection.create_function("power", 2, pow, deterministic=True)  # not every build has it
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    cursor.close()


def _begin_sqlite(connection: Any) -> None:
    reading = connection.get_execution_options().get("reading", False)
    if reading:  # a read waits for no lock, cannot fail, and costs a fifth of SQLAlchemy's way
        connection.connection.dbapi_connection.execute("BEGIN")
    else:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


class MovingSession(Session):
    """Writes the moves of its rows with every flush, so that each query sees them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.moves = Moves()
        self.kept: list[object] = []
        """Every row that it loaded, so that no lookup by key reads one twice."""

    def flush(self, objects: Sequence[Any] | None = None) -> None:
        if self.moves:
            self.moves.write(self.connection())
        super().flush(objects)


Sessions = sessionmaker[MovingSession]


def sessions_of(engine: Engine, features: Sequence[object] = ()) -> Sessions:
    """Returns a factory of sessions; each carries the features, by requester.feature.features_of."""
    shared = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    reading = engine.execution_options(**(shared if is_shared(engine) else {"reading": True}))
    info = {"features": tuple(features), "reading": reading}
    sessions = sessionmaker(engine, class_=MovingSession, expire_on_commit=False, info=info)
    event.listen(sessions, "loaded_as_persistent", lambda session, row: session.kept.append(row))
    return sessions


def features_in(sessions: Sessions) -> tuple[object, ...]:
    features: tuple[object, ...] = sessions.kw["info"]["features"]
    return features
