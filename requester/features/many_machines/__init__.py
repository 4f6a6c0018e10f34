"""A service on several machines: stages in Celery workers, notifications through PostgreSQL."""

from importlib import import_module
from typing import Final

from requester.feature import Feature
from requester.notifier import Notifier, Relay
from requester.settings import RequesterSettings

QUEUE: Final = "requester.features.many_machines.queue"
"""Imported where stages are left to it: Celery, its messages and Redis take a seventh of the start."""
DATABASE_NOTIFIER: Final = "requester.features.many_machines.database_notifier"
"""Imported where the database is PostgreSQL: it needs psycopg."""


class ManyMachinesFeature(Feature):
    name = "many_machines"
    needs = ("part_troubles",)

    def open_relay(self, settings: RequesterSettings) -> Relay:
        relay: Relay = import_module(QUEUE).relay_of(settings)
        return relay

    def open_notifier(self, url: str, relay: Relay | None) -> Notifier:
        notifier: Notifier = import_module(DATABASE_NOTIFIER).DatabaseNotifier(url, relay)
        return notifier
