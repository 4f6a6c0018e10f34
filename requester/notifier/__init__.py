"""Notifiers wake stages and long polls: within one process in memory, across processes by PostgreSQL's NOTIFY."""

from sqlalchemy.engine import make_url

from gradmarket.requester.notifier.local import Notifier, ended_topic, job_topic, rung_within, sum_topic, worker_topic
from gradmarket.requester.notifier.postgres import DatabaseNotifier, Relay

__all__ = [
    "DatabaseNotifier",
    "Notifier",
    "Relay",
    "ended_topic",
    "job_topic",
    "notifier_of",
    "rung_within",
    "sum_topic",
    "worker_topic",
]


def notifier_of(url: str, relay: Relay | None = None) -> Notifier:
    """Returns the notifier for processes that share the database at `url`; for `relay` see DatabaseNotifier."""
    shared = make_url(url).get_backend_name() == "postgresql"
    return DatabaseNotifier(url, relay) if shared else Notifier()
