"""Databases of the newest revision, made quickly: on SQLite a copy of a file, on PostgreSQL a copy of a template."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pgserver
import psycopg
import pytest
from sqlalchemy import Connection, Dialect, Engine, event

from requester.store import schema
from requester.store.session import open_engine
from tests.lanes import FULL

IN_MEMORY = Path("/dev/shm")
"""Syncing to disk would be most of the tests' waiting."""
TEMPLATE = "newest"

BOTH = pytest.mark.databases("sqlite", "postgresql")
"""Tests of this mark run on PostgreSQL in `make test` too. The others do so in `make test-all` and `make test-deep`."""

NewDatabase = Callable[[Path], str]
"""A new database's address; on SQLite it lies in the folder."""


def databases_of(test: pytest.Function, config: pytest.Config) -> Sequence[object]:
    """Those that its mark names; without a mark SQLite, and PostgreSQL where that is not left to a longer run."""
    if mark := test.get_closest_marker("databases"):
        return mark.args
    longer = config.option.markexpr.startswith(FULL.name) or plays_deep()
    return ("sqlite", pytest.param("postgresql", marks=FULL)) if longer else ("sqlite",)


def plays_deep() -> bool:
    """Whether this is `make test-deep`, which plays every case on either database."""
    return os.environ.get("HYPOTHESIS_PROFILE") == "deep"


def in_memory() -> str | None:
    return str(IN_MEMORY) if IN_MEMORY.is_dir() else None


@cache
def sqlite_template() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "newest.sqlite"
        _make(f"sqlite:///{path}")
        return path.read_bytes()


def new_sqlite(folder: Path) -> str:
    path = folder / "market.sqlite"
    path.write_bytes(sqlite_template())
    return f"sqlite:///{path}"


class Postgres:
    """A server of the session's own that loses everything with the machine, so that no commit waits for a disk."""

    def __init__(self, server: pgserver.PostgresServer) -> None:
        self._address = server.get_uri().replace("postgres:@", "postgres@")
        self._numbers = count()
        self.run("ALTER SYSTEM SET fsync = off", "ALTER SYSTEM SET full_page_writes = off", "SELECT pg_reload_conf()")
        self.run(f"CREATE DATABASE {TEMPLATE}")
        _make(self.url(TEMPLATE))

    def url(self, name: str) -> str:
        return self._address.replace("/postgres?", f"/{name}?")

    def run(self, *statements: str) -> None:
        with psycopg.connect(self._address, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def new(self, template: str = TEMPLATE) -> str:
        """A copy of the template, which nobody may be connected to."""
        name = f"market{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return self.url(name)

    def drop(self, url: str) -> None:
        self.run(f"DROP DATABASE {_name(url)} WITH (FORCE)")


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    with TemporaryDirectory(dir=in_memory()) as folder:
        server = pgserver.get_server(folder)
        try:
            yield Postgres(server)
        finally:
            server.cleanup()


def _name(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


def _make(url: str) -> None:
    engine = open_engine(url)
    schema.upgrade_schema(engine)
    engine.dispose()


_COMPILED: dict[str, tuple[Dialect, dict[Any, Any]]] = {}


@event.listens_for(Engine, "engine_connect")
def _share_compiled_statements(connection: Connection) -> None:
    """Has all engines of one kind compile each statement once: a service has one engine, tests have thousands."""
    engine = connection.engine
    dialect, compiled = _COMPILED.setdefault(engine.dialect.name, (engine.dialect, {}))
    if engine.get_execution_options().get("compiled_cache") is not compiled:
        engine.dialect = connection.dialect = dialect
        engine.update_execution_options(compiled_cache=compiled)
