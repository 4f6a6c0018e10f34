"""Limits on connections: clients that are silent, too slow or too many."""

from asyncio import Protocol

from starlette.types import ASGIApp

from requester.feature import Feature
from requester.features.slow_clients.connections import (
    ConnectionLimits,
    Connections,
    SlowClients,
    build_protocol_class,
)
from requester.settings import RequesterSettings


class SlowClientsFeature(Feature):
    name = "slow_clients"

    def guard_connections(self, app: ASGIApp, settings: RequesterSettings) -> tuple[ASGIApp, type[Protocol]]:
        exempt = settings.exempt | settings.trusted_proxies
        limits = ConnectionLimits(settings.header_s, settings.silence_s, settings.address_connections, exempt)
        connections = Connections(limits)
        return SlowClients(app, connections, settings.silence_s), build_protocol_class(connections)
