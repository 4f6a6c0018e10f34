"""A bell wakes stages and long polls: in one process by itself, across processes by PostgreSQL's NOTIFY."""

from sqlalchemy.engine import make_url

from gradmarket.requester.bell.local import Bell, ended_topic, job_topic, rung_within, worker_topic
from gradmarket.requester.bell.postgres import DatabaseBell, Relay

__all__ = ["Bell", "DatabaseBell", "Relay", "bell_of", "ended_topic", "job_topic", "rung_within", "worker_topic"]


def bell_of(url: str, relay: Relay | None = None) -> Bell:
    """The bell for processes that share the database at `url`; see DatabaseBell for `relay`."""
    shared = make_url(url).get_backend_name() == "postgresql"
    return DatabaseBell(url, relay) if shared else Bell()
