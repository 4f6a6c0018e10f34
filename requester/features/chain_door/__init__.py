"""The local chain's node behind the service's own door, for machines that reach the service alone."""

from typing import Any, Final

from fastapi import APIRouter, FastAPI

from gradmarket.market.errors import NotFound
from requester.api.problems import describe_problems
from requester.context import Context
from requester.feature import Feature
from requester.features.chain_door.node_door import ChainDoor

router = APIRouter(tags=["service"])

ASKED: Final = {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": []}
CALL: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["jsonrpc", "id", "method"],
    "properties": {
        "jsonrpc": {"type": "string", "const": "2.0", "description": "The version of JSON-RPC."},
        "id": {"type": "integer", "description": "Comes back in the answer.", "examples": [1]},
        "method": {
            "type": "string",
            "description": "One that reads, or eth_sendRawTransaction.",
            "examples": ["eth_call"],
        },
        "params": {"type": "array", "items": {}, "description": "The method's arguments.", "examples": [[]]},
    },
}
ANSWER: Final = {
    "description": "JSON-RPC's answer, or its error",
    "content": {"application/json": {"schema": {"type": "object"}}},
}


@router.post(
    "/chain",
    operation_id="ask_chain",
    summary="The local chain's node, for machines that reach the service alone: what reads, and signed transactions",
    responses={200: ANSWER, **describe_problems(404)},
    openapi_extra={
        "requestBody": {"content": {"application/json": {"schema": CALL, "example": ASKED}}, "required": True}
    },
)
def ask_chain() -> dict[str, Any]:
    """Answered by node_door where the service has a local chain; here where it has none."""
    raise NotFound("this service has no local chain: ask a node of the chain that GET /v1/chain names")


class ChainDoorFeature(Feature):
    name = "chain_door"
    routers = (router,)

    def add_middleware(self, app: FastAPI, context: Context) -> None:
        app.add_middleware(ChainDoor, node=context.chain_facts.rpc)
