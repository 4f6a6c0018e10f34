"""A notifier wakes stages and long polls: in one process by itself, across processes by PostgreSQL's NOTIFY."""

from sqlalchemy.engine import make_url

from gradmarket.requester.notifier.local import Notifier, ended_topic, job_topic, rung_within, worker_topic
from gradmarket.requester.notifier.postgres import DatabaseNotifier, Relay

__all__ = [
    "DatabaseNotifier",
    "Notifier",
    "Relay",
    "notifier_of",
    "ended_topic",
    "job_topic",
    "rung_within",
    "worker_topic",
]


def notifier_of(url: str, relay: Relay | None = None) -> Notifier:
    """The bell for processes that share the database at `url`; see DatabaseBell for `relay`."""
    shared = make_url(url).get_backend_name() == "postgresql"
    return DatabaseNotifier(url, relay) if shared else Notifier()
