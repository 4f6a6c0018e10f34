"""A node may answer anything: a reader raises a ChainError, or returns the answer's value; nothing else."""

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey

from contracts import calls, claims, events, rpc, stakes
from contracts.deployment import Deployment
from contracts.ledger import Ledger
from contracts.rpc import call_json_rpc, connect_to_node
from contracts.transactions import (
    chain_id,
    estimate_gas_limit,
    execute_call,
    fetch_fees,
    fetch_outcome,
    send_transaction,
)
from gradmarket.market.messages import Voucher
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, Hash, Units
from gradmarket.network.chain_errors import ChainError, ChainUnreachable, NodeRefused
from requester.features.ledger import chain_moves
from tests.kit.web_server import serving_by
from tests.lanes import leave_to_full

ME, KEY, ZERO = Address("0x" + "12" * 20), PrivateKey(b"\x07" * 32), Hash(bytes(32))
DEPLOYED = Deployment(31337, ZERO, Address("0x" + "ab" * 20), Address("0x" + "cd" * 20), ZERO, 0)
TO = calls.Call(ME, b"\x01")

RESULTS: tuple[Any, ...] = (
    None, "", "0x", "0xzz", "0x1", "0x" + "ff" * 31, "0x" + "ff" * 32, "0x" + "ff" * 416, "0x" + "00" * 4096,
    {}, [], [[]], [{}], 5, -1, 1.5, True, "ten", "\u202e0x01", {"number": None, "timestamp": None}, {"hash": 5},
    {"number": "0x1", "timestamp": "soon"}, {"number": "0x-1", "timestamp": {}}, {"baseFeePerGas": "dear"},
    [{"topics": [], "data": "0x"}], [{"topics": None}], {"blockNumber": "0x1", "status": "maybe"},
    {"blockNumber": "0x1", "status": "0x1"},
)  # fmt: skip
ERRORS: tuple[Any, ...] = (
    None, "no", 5, [], {}, {"code": 1}, {"message": None}, {"message": {"a": 1}},
    {"code": 3, "message": "m", "data": 7}, {"code": 3, "message": "execution reverted", "data": "0xzz"},
    {"code": 3, "message": "execution reverted", "data": "0x08c379a0"},
)  # fmt: skip
WHOLE: tuple[bytes, ...] = (
    b"",
    b"nonsense",
    b"null",
    b"[]",
    b"5",
    b'"text"',
    b"{",
    b"\xff\xfe",
    b"[" * 100_000,
    b"[null]",
)

READS: dict[str, Callable[[Ledger], object]] = {
    "verify": lambda at: at.verify(),
    "verify_instance": lambda at: at.verify_instance(),
    "job": lambda at: at.job(1),
    "account": lambda at: at.account(1, ME),
    "accounts": lambda at: at.accounts(1, [ME, ME], 1),
    "free": lambda at: at.free(1),
    "payout_of": lambda at: at.payout_of(ME),
    "batch_root": lambda at: at.batch_root(1, 0),
    "record_root": lambda at: at.record_root(1, 0),
    "balance": lambda at: at.balance(ME),
    "symbol": lambda at: at.symbol(),
    "decimals": lambda at: at.decimals(),
    "gas_money": lambda at: at.gas_money(ME),
    "nonce": lambda at: at.nonce(ME) + 0,
    "height": lambda at: at.height() + 0,
    "block_hash": lambda at: at.block_hash(1),
    "block": lambda at: at.block().time + at.block().number,
    "next_time": lambda at: at.next_time() + 0,
    "opened_job": lambda at: events.opened_job(at, 1),
    "all_opened": lambda at: events.all_opened(at, ME, ZERO),
    "announced": lambda at: list(events.fetch_announced_jobs(at.web3, 0, 1)),
    "accounts_touched": lambda at: events.accounts_touched(at, 0, 1),
    "accused": lambda at: events.accused(at, ME, 0, 1),
    "ended": lambda at: events.ended(at, ZERO),
    "moves": lambda at: chain_moves.list_moves(at, 1, 1),
    "staker": lambda at: stakes.staker(at, ME),
    "exposure": lambda at: stakes.exposure(at, 1, ME),
    "case": lambda at: stakes.case(at, ZERO),
    "chain_id": lambda at: chain_id(at.web3) + 0,
    "estimate": lambda at: estimate_gas_limit(at.web3, ME, TO),
    "fees": lambda at: fetch_fees(at.web3),
    "outcome": lambda at: fetch_outcome(at.web3, "0x" + "11" * 32),
    "send": lambda at: send_transaction(at.web3, b"\x02"),
    "request": lambda at: call_json_rpc(at.web3, "anvil_setBalance", ME, "0x1"),
    "execute": lambda at: execute_call(at.web3, KEY, TO, 0.0),
    "redeem": lambda at: claims.redeem(at, KEY, Voucher(1, address_of(KEY), Units(1)), bytes(65), 0.0),
}


class Node(BaseHTTPRequestHandler):
    answer: Callable[[Any], bytes]
    leads_to = ""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = Node.answer(asked)
        self.send_response(307 if Node.leads_to else 200)
        if Node.leads_to:
            self.send_header("Location", Node.leads_to)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def senseless() -> Iterator[Ledger]:
    with serving_by(Node) as url:
        yield Ledger(connect_to_node(url), DEPLOYED)


def build_answer(**said: Any) -> Callable[[Any], bytes]:
    """Answers each call with these members."""

    def answer(asked: Any) -> bytes:
        one = {"jsonrpc": "2.0", "id": 1, **said}
        return json.dumps([one] * len(asked) if isinstance(asked, list) else one).encode()

    return answer


ANSWERS: tuple[Callable[[Any], bytes], ...] = (
    *(build_answer(result=result) for result in RESULTS),
    *(build_answer(error=error) for error in ERRORS),
    build_answer(),
    *((lambda _asked, body=body: body) for body in WHOLE),
)


@pytest.mark.parametrize("read", leave_to_full(READS.values(), 2), ids=READS)
def test_any_answer_of_a_node_is_read_or_raises_a_chain_error(
    senseless: Ledger, read: Callable[[Ledger], object]
) -> None:
    refused = 0
    for number, answer in enumerate(ANSWERS):
        Node.answer = staticmethod(answer)  # type: ignore[assignment]
        try:
            read(senseless)
        except ChainError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"answer {number}: {answer([])[:80]!r}") from error
    assert refused


def test_an_answer_without_end_takes_neither_memory_nor_time(
    senseless: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    Node.answer = staticmethod(build_answer(result="0x" + "1" * 10**6))  # type: ignore[assignment]
    assert chain_id(senseless.web3)
    monkeypatch.setattr(rpc, "MOST_ANSWER", 10**6)
    with pytest.raises(NodeRefused, match="more than 1000000 bytes"):
        chain_id(senseless.web3)
    monkeypatch.setattr(rpc, "MOST_ANSWER", 10**7)
    monkeypatch.setattr(rpc, "ANSWER_S", -1.0)
    with pytest.raises(ChainUnreachable, match="did not end"):
        chain_id(senseless.web3)


def test_a_node_that_leads_elsewhere_is_not_followed(senseless: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's node would have this machine post into its own network."""
    Node.answer = staticmethod(build_answer(result="0x1"))  # type: ignore[assignment]
    monkeypatch.setattr(Node, "leads_to", "http://127.0.0.1:1/inside")
    with pytest.raises(NodeRefused, match=r"leads on to http://127\.0\.0\.1:1/inside"):
        chain_id(senseless.web3)
