"""The local chain's node behind the service's own door, so that another machine needs one port and one address.

What only the node's owner may do (Anvil's own methods, accounts that it signs for) does not pass: methods that read,
and a transaction that its sender signed.
"""

import json
from typing import Any, Final

import httpx
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from requester.api import problems

PATH: Final = "/chain"
METHODS: Final = frozenset(
    {
        "eth_blockNumber",
        "eth_call",
        "eth_chainId",
        "eth_estimateGas",
        "eth_feeHistory",
        "eth_gasPrice",
        "eth_getBalance",
        "eth_getBlockByHash",
        "eth_getBlockByNumber",
        "eth_getCode",
        "eth_getLogs",
        "eth_getProof",
        "eth_getStorageAt",
        "eth_getTransactionByHash",
        "eth_getTransactionCount",
        "eth_getTransactionReceipt",
        "eth_maxPriorityFeePerGas",
        "eth_sendRawTransaction",
        "eth_syncing",
        "net_version",
        "web3_clientVersion",
    }
)
BATCH: Final = 100
NODE_S: Final = 10.0
UNREADABLE: Final = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no JSON-RPC request"}}


class ChainDoor:
    """Passes JSON-RPC requests of METHODS on to `node`; a batch passes as a whole or not at all."""

    def __init__(self, app: ASGIApp, node: str | None) -> None:
        self._app, self._node = app, node
        self._client = httpx.AsyncClient(trust_env=False, timeout=NODE_S)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST" or self._node is None:
            await self._app(scope, receive, send)
            return
        try:
            body = await Request(scope, receive).body()
        except ClientDisconnect:
            return
        await (await self._answer(self._node, body))(scope, receive, send)

    async def _answer(self, node: str, body: bytes) -> Response:
        refusal = find_refusal(body)
        if refusal is not None:
            return Response(json.dumps(refusal), media_type="application/json")
        try:
            # encoded anew: of a doubled name, the node might read the one that was not looked at; in ASCII, since JSON
            # has halves of letters that UTF-8 has not
            again = json.dumps(json.loads(body)).encode()
            answer = await self._client.post(node, content=again, headers={"Content-Type": "application/json"})
        except httpx.HTTPError:
            return problems.build_problem_response(503, "the chain's node does not answer")
        return Response(answer.content, answer.status_code, media_type="application/json")


def find_refusal(body: bytes) -> dict[str, Any] | None:
    """Returns the JSON-RPC error of the first request that may not pass; None where all may."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return UNREADABLE
    requests = asked if isinstance(asked, list) else [asked]
    if not 0 < len(requests) <= BATCH or not all(isinstance(one, dict) for one in requests):
        return UNREADABLE
    for one in requests:
        method = one.get("method")
        if not isinstance(method, str) or method not in METHODS:
            return {
                "jsonrpc": "2.0",
                "id": one.get("id"),
                "error": {"code": -32601, "message": f"{str(method)[:80]} is not passed on to the node"},
            }
    return None
