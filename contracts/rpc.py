"""Connects to a chain's node, and converts its errors to ours."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from typing import Any, Final
from urllib.parse import urlsplit

from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError
from eth_utils.abi import collapse_if_tuple
from eth_utils.crypto import keccak
from requests import PreparedRequest, Request, Response, Session
from requests.exceptions import HTTPError, RequestException, SSLError
from urllib3.exceptions import HTTPError as TransportError
from web3 import HTTPProvider, Web3
from web3.exceptions import (
    BadFunctionCallOutput,
    ContractLogicError,
    TransactionNotFound,
    Web3Exception,
    Web3RPCError,
)
from web3.types import RPCEndpoint, RPCResponse

from contracts.artifact import load_artifact
from gradmarket.market.errors import Refused
from gradmarket.market.terms import Address
from gradmarket.network.chain_errors import ChainUnreachable, ContractRefused, ForeignChain, NodeBusy, NodeRefused
from gradmarket.network.environment import find_authorities, is_address, proxy_of

LOCAL_CHAIN_IDS: Final = frozenset({31337, 1337})
"""The ids of chains on one machine, whose money is worth nothing."""
BATCH: Final = 20
"""Calls in one batch, at most: public nodes and a service's /chain allow as many."""
BATCHES: Final = 100
"""Batches after which a larger one is tried again: a refusal may have been one of the moment."""
LOG_SPAN: Final = 5_000
"""Blocks in one request for logs, until a node refuses."""
OUT_OF_RANGE_TRIES: Final = 10
MALFORMED: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, DecodingError)
"""Errors that web3 and this module raise over an answer that violates the protocol's form."""
TOO_MANY: Final = 429
SERVERS_FAULT: Final = 500
_TOO_OFTEN: Final = re.compile(r"rate.?limit|too many requests|requests per|throughput|\b429\b", re.IGNORECASE)
NO_NODE: Final = "look whether --rpc is the address of a chain's node, with its key if it takes one"
PLANS: Final = "wait, or name a node that answers more requests with --rpc"
AUTHORITY: Final = "name the file of the authority that signed it (PEM) in SSL_CERT_FILE"


MOST_ANSWER: Final = 64 * 2**20
"""Bytes of one answer, unpacked: a node may be a stranger's."""
ANSWER_S: Final = 120.0
"""Seconds from the first byte of an answer to its end; a request's timeout runs from one byte to the next."""
CHUNK: Final = 1 << 16


class _NodeSession(Session):
    """Reads bounded answers, and follows no redirect.

    Its settings are its own: requests would read netrc, and write the environment of all threads to hide a proxy.
    """

    def __init__(self, proxy: str | None) -> None:
        super().__init__()
        self.trust_env = False
        self.proxies = {"http": proxy, "https": proxy} if proxy else {}
        self._first: PreparedRequest | None = None

    def prepare_request(self, request: Request) -> PreparedRequest:
        """All requests of a session differ in their bodies alone: the rest takes a fifth of a call, and is done once.

        No cookie of a node is sent back.
        """
        if self._first is None:
            self._first = super().prepare_request(request)
        prepared = self._first.copy()
        prepared.prepare_body(request.data, None)
        return prepared

    def send(self, request: PreparedRequest, **options: Any) -> Response:
        answer = super().send(request, **options | {"stream": True, "allow_redirects": False})
        if answer.is_redirect:
            answer.close()
            raise NodeRefused(f"it leads on to {answer.headers['location'][:200]}", "name the address there as --rpc")
        body, until = bytearray(), time.monotonic() + ANSWER_S
        try:
            for chunk in answer.raw.stream(CHUNK, decode_content=True):
                body += chunk
                if len(body) > MOST_ANSWER:
                    raise NodeRefused(f"it answers more than {MOST_ANSWER} bytes")
                if time.monotonic() > until:
                    raise ChainUnreachable(f"it began an answer and did not end it within {ANSWER_S:g} seconds")
        except BaseException as error:
            answer.close()
            if isinstance(error, TransportError):
                raise ChainUnreachable(type(error).__name__) from error
            raise
        answer.raw = BytesIO(body)
        return answer


class _Provider(HTTPProvider):
    """Repeats a request if a block was mined while Anvil looked up "latest", which it does in two steps."""

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        answer = super().make_request(method, params)
        for _ in range(OUT_OF_RANGE_TRIES):
            if "BlockOutOfRange" not in str(answer.get("error", "")):
                break
            answer = super().make_request(method, params)
        return answer


def connect_to_node(url: str, timeout_s: float = 10.0) -> Web3:
    """Returns a connection that does not retry requests without an answer: the caller knows whether that is safe.

    It omits web3's validation, which requests the chain id before every call: our signatures include it anyway. Proxy
    and trust are the environment's (network.environment). Raises Refused where its settings or `url` are wrong.
    """
    if not is_address(url):
        raise Refused(f"{url[:200]!r} is not the address of a chain's node", "write it like http://127.0.0.1:8545")
    parts = urlsplit(url)
    proxy = proxy_of(parts.scheme, parts.hostname or "", parts.port)
    session = _NodeSession(proxy)
    network = {"timeout": timeout_s, "verify": find_authorities() or True}
    web3 = Web3(_Provider(url, request_kwargs=network, session=session, exception_retry_configuration=None))
    web3.middleware_onion.remove("validation")
    return web3


@contextmanager
def node_errors() -> Iterator[None]:
    """Converts web3's errors to ChainUnreachable, NodeBusy, ContractRefused, ForeignChain or NodeRefused.

    Only TransactionNotFound is left, since it is an answer. An error that web3, or reading an answer, raises over a
    form other than the protocol's is a NodeRefused too: no node may end its caller.
    """
    try:
        yield
    except HTTPError as error:
        raise _of_status(error.response) from error
    except SSLError as error:
        raise ChainUnreachable("its certificate is not trusted", AUTHORITY) from error
    except (RequestException, ConnectionError, TimeoutError) as error:
        raise ChainUnreachable(type(error).__name__) from error
    except ContractLogicError as error:
        raise decode_refusal(error.data, str(error)) from error
    except BadFunctionCallOutput as error:
        raise ForeignChain("code", "a contract", "none") from error
    except TransactionNotFound:
        raise
    except Web3RPCError as error:
        answer = error.rpc_response
        sent = answer.get("error") if isinstance(answer, dict) else None
        message = sent["message"] if isinstance(sent, dict) and "message" in sent else sent or error
        raise _build_node_refusal(str(message)) from error
    except Web3Exception as error:
        raise ChainUnreachable(str(error)) from error
    except MALFORMED as error:
        fault = f"{type(error).__name__}: {str(error)[:200]}"
        raise NodeRefused(f"the node's answer is invalid ({fault})", NO_NODE) from error


def call_json_rpc(web3: Web3, method: str, *parameters: Any) -> Any:
    """Makes a JSON-RPC call that web3 has no method for; returns the result as JSON."""
    with node_errors():
        answer = web3.provider.make_request(RPCEndpoint(method), list(parameters))
        if "error" in answer:
            raise _build_node_refusal(str(answer["error"]))
        return answer.get("result")


def call_views(web3: Web3, to: Address, data: Sequence[bytes], at: int) -> list[bytes]:
    """Calls views of the contract `to` at block `at`, in JSON-RPC batches of BATCH calls; returns their results.

    A batch that the node refuses is halved, down to a call without any: public nodes take from none to a hundred calls.
    The connection remembers the accepted size, and tries a larger one again after BATCHES.
    """
    node: Any = web3.provider
    results, size = list[bytes](), int(getattr(node, "batch", BATCH))
    while len(results) < len(data):
        most = min(size, len(data) - len(results))
        asked: list[tuple[RPCEndpoint, Any]] = [
            (RPCEndpoint("eth_call"), [{"to": to, "data": "0x" + calldata.hex()}, hex(at)])
            for calldata in data[len(results) : len(results) + most]
        ]
        try:
            results += _call_batch(node, asked)
        except NodeRefused:
            if most == 1:
                raise
            size, node.taken = most // 2, 0
        else:
            node.taken = getattr(node, "taken", 0) + 1
            node.batch = size = size if node.taken % BATCHES else min(BATCH, 2 * size)
    return results


def _call_batch(node: Any, asked: Sequence[tuple[RPCEndpoint, Any]]) -> list[bytes]:
    with node_errors():
        answers = node.make_batch_request(asked) if len(asked) > 1 else [node.make_request(*asked[0])]
        results = []
        for answer in answers if isinstance(answers, list) else [answers]:
            if "error" in answer:
                raise _build_node_refusal(str(answer["error"]))
            results.append(bytes.fromhex(str(answer["result"]).removeprefix("0x")))
    if len(results) != len(asked):
        raise NodeRefused(f"the node's answer is invalid ({len(results)} results of {len(asked)} calls)")
    return results


def _of_status(response: Response) -> NodeBusy | NodeRefused:
    """Returns the error that a node meant by a status that is no success; many send JSON-RPC's error with it."""
    status = f"it answers {response.status_code} {response.reason or ''}".strip()
    if response.status_code == TOO_MANY:
        return NodeBusy(status, PLANS)
    try:
        error = response.json()["error"]
        return _build_node_refusal(str(error["message"]))
    except (ValueError, LookupError, TypeError):
        return NodeBusy(status) if response.status_code >= SERVERS_FAULT else NodeRefused(status, NO_NODE)


def _build_node_refusal(message: str) -> NodeBusy | NodeRefused:
    """Returns the refusal that a node put in words; one of too many requests passes by itself."""
    return NodeBusy(message, PLANS) if _TOO_OFTEN.search(message) else NodeRefused(message)


def decode_refusal(data: Any, message: str = "") -> ContractRefused:
    """Decodes revert data (0x hex) to an error of the contract or the token; uses `message` if it is none of them."""
    raw = bytes.fromhex(data[2:]) if isinstance(data, str) and re.fullmatch("0x([0-9a-fA-F]{2})*", data) else b""
    known = _custom_errors().get(raw[:4])
    if known is None:
        return ContractRefused(message or "revert", (data,) if raw else ())
    name, types = known
    try:
        return ContractRefused(name, decode(types, raw[4:]))
    except DecodingError:
        return ContractRefused(name, (data,))


@cache
def _custom_errors() -> dict[bytes, tuple[str, tuple[str, ...]]]:
    """Returns name and argument types of every error that either contract declares, by selector."""
    errors = {}
    for contract in ("GradMarket", "GradToken"):
        for item in load_artifact(contract).abi:
            if item["type"] == "error":
                types = tuple(collapse_if_tuple(argument) for argument in item["inputs"])
                errors[keccak(text=f"{item['name']}({','.join(types)})")[:4]] = (item["name"], types)
    return errors
