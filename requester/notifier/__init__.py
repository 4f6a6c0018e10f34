"""Notifiers wake stages and long polls: within one process in memory, across processes by PostgreSQL's NOTIFY."""

from importlib import import_module
from typing import Final

from sqlalchemy.engine import make_url

from requester.notifier.local import (
    Notifier,
    Relay,
    ended_topic,
    job_topic,
    rung_within,
    sum_topic,
    worker_topic,
)

__all__ = [
    "Notifier",
    "Relay",
    "ended_topic",
    "job_topic",
    "notifier_of",
    "rung_within",
    "sum_topic",
    "worker_topic",
]


POSTGRES: Final = "requester.notifier.postgres"
"""Imported where the database is PostgreSQL: it needs psycopg."""


def notifier_of(url: str, relay: Relay | None = None) -> Notifier:
    """Returns the notifier for processes that share the database at `url`; for `relay` see its module."""
    if make_url(url).get_backend_name() != "postgresql":
        return Notifier()
    notifier: Notifier = import_module(POSTGRES).DatabaseNotifier(url, relay)
    return notifier
