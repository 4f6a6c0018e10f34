"""The local chain's node behind the service's own door, so that another machine needs one port and one address.

Methods that read pass, and transactions that their senders signed. Methods for the node's owner (Anvil's own, accounts
that it signs for) do not pass; nor do requests that cost the node more than a block's gas or the service's memory.
"""

import json
import re
from typing import Any, Final

import httpx
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from contracts.rpc import BATCH
from contracts.token_moves import PROBE
from gradmarket.network.async_transport import AsyncClockedTransport
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
CALLS: Final = frozenset({"eth_call", "eth_estimateGas"})
GAS: Final = 30_000_000
"""Gas of one call, at most: as much as a block of the local chain."""
ANSWER: Final = 16 << 20
"""Bytes of an answer, at most: the service holds it in memory until the node has ended it."""
NODE_S: Final = 10.0
HEX: Final = re.compile("0x[0-9a-fA-F]{1,64}")


def build_error(request_id: Any, code: int, message: str) -> dict[str, Any]:
    """Returns JSON-RPC's error; its id is null unless the request's is a string or a whole number."""
    known = request_id if isinstance(request_id, str | int) and not isinstance(request_id, bool) else None
    return {"jsonrpc": "2.0", "id": known, "error": {"code": code, "message": message}}


UNREADABLE: Final = build_error(None, -32600, "no JSON-RPC request")
TOO_MANY: Final = build_error(None, -32600, f"a batch has at most {BATCH} requests here: send it in parts")
TOO_LONG: Final = f"the answer has more than {ANSWER >> 20} MiB: ask for fewer blocks, or for less in one batch"


class ChainDoor:
    """Passes JSON-RPC requests of METHODS on to `node`; a batch passes as a whole or not at all."""

    def __init__(self, app: ASGIApp, node: str | None) -> None:
        self._app, self._node = app, node
        self._client = httpx.AsyncClient(trust_env=False, transport=AsyncClockedTransport(), timeout=NODE_S)

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
        admitted = encode_admitted(body)
        if isinstance(admitted, dict):
            return Response(json.dumps(admitted), media_type="application/json")
        headers = {"Content-Type": "application/json"}
        answer = bytearray()
        try:
            async with self._client.stream("POST", node, content=admitted, headers=headers) as response:
                async for part in response.aiter_bytes():
                    answer += part
                    if len(answer) > ANSWER:
                        asked = json.loads(admitted)
                        refusal = build_error(asked.get("id") if isinstance(asked, dict) else None, -32005, TOO_LONG)
                        return Response(json.dumps(refusal), media_type="application/json")
        except httpx.HTTPError:
            return problems.build_problem_response(503, "the chain's node does not answer")
        return Response(bytes(answer), response.status_code, media_type="application/json")


def encode_admitted(body: bytes) -> bytes | dict[str, Any]:
    """Returns the requests as the node gets them, or the JSON-RPC error of the first that may not pass.

    They are encoded anew: of a doubled name, the node might read the one that was not looked at. In ASCII, since JSON
    has halves of letters that UTF-8 has not; and without NaN and 1e999, which Python reads and JSON has not.
    """
    try:
        asked = json.loads(body)
        encoded = json.dumps(asked, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return UNREADABLE
    requests = asked if isinstance(asked, list) else [asked]
    if not requests or not all(isinstance(one, dict) for one in requests):
        return UNREADABLE
    if len(requests) > BATCH:
        return TOO_MANY
    logs = 0
    for one in requests:
        method = one.get("method")
        if not isinstance(method, str) or method not in METHODS:
            return build_error(one.get("id"), -32601, f"{str(method)[:80]} is not passed on to the node")
        logs += method == "eth_getLogs"
        if logs > 1:
            return build_error(one.get("id"), -32602, "a batch has at most one eth_getLogs here: send them one by one")
        if method in CALLS and (fault := _find_call_fault(one.get("params"))):
            return build_error(one.get("id"), -32602, f"{method} {fault}")
    return encoded


def _find_call_fault(params: Any) -> str:
    """Returns why a call would cost the node too much; empty for one that may pass.

    The one override that passes is PROBE, with which workers look at a market's token.
    """
    if not isinstance(params, list) or not params or not isinstance(params[0], dict):
        return "takes a list here that begins with the call's object"
    probing = len(params) == 3 and isinstance(params[2], dict) and list(params[2].values()) == [{"code": PROBE}]
    if len(params) > 2 and not probing:
        return "takes no third parameter here, since code and state of one's own may run for minutes"
    limits = [params[0][name] for name in ("gas", "gasLimit") if name in params[0]]
    if any(not isinstance(gas, str) or not HEX.fullmatch(gas) or int(gas, 16) > GAS for gas in limits):
        return f"takes gas in hex here, of at most {GAS} ({GAS:#x})"
    return ""
