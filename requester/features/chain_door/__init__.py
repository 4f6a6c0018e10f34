"""The local chain's node behind the service's own door, for machines that reach the service alone."""

from fastapi import FastAPI

from requester.context import Context
from requester.feature import Feature
from requester.features.chain_door import chain_routes
from requester.features.chain_door.node_door import ChainDoor


class ChainDoorFeature(Feature):
    name = "chain_door"
    routers = (chain_routes.router,)

    def add_middleware(self, app: FastAPI, context: Context) -> None:
        app.add_middleware(ChainDoor, node=context.chain_facts.rpc)
