"""Public nodes: limits of blocks a request and of requests a second, and proxies that fail before them."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
from web3 import Web3

from contracts import events, rpc
from contracts.ledger import Ledger
from contracts.rpc import BATCH, LOG_SPAN, call_views, connect_to_node
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address
from gradmarket.network.chain_errors import ChainUnreachable, NodeBusy, NodeRefused
from tests.network.servers import serving
from tests.onchain import OpenJob

Refusal = Callable[[int], tuple[int, bytes]]
"""(id of the request) -> (status, body)."""


def build_refusal(message: str, status: int = 200, code: int = -32602) -> Refusal:
    """A refusal in JSON-RPC's words; many nodes send it with a status that is no success."""
    error = {"code": code, "message": message}
    return lambda number: (status, json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode())


@contextmanager
def limited(ledger: Ledger, most: int, refusal: Refusal) -> Iterator[tuple[Ledger, list[int]]]:
    """Yields the chain behind a node that refuses logs of more than `most` blocks, and the spans it was asked for."""
    url, node, spans = str(ledger.web3.provider.endpoint_uri), httpx.Client(), list[int]()  # type: ignore[attr-defined]

    def answer(_method: str, _target: str, body: bytes) -> tuple[int, bytes]:
        asked = json.loads(body)
        if asked["method"] == "eth_getLogs":
            first, last = (int(asked["params"][0][name], 16) for name in ("fromBlock", "toBlock"))
            spans.append(last - first + 1)
            if spans[-1] > most:
                return refusal(asked["id"])
        return 200, node.post(url, content=body, headers={"content-type": "application/json"}).content

    with node, serving(answer) as limited_url:
        yield Ledger(connect_to_node(limited_url), ledger.deployment), spans


@pytest.mark.parametrize(
    "refusal",
    [
        build_refusal("query exceeds max block range 500"),
        build_refusal("block range is too wide", status=400, code=-32000),
        build_refusal("query returned more than 10000 results", code=-32005),
        lambda _number: (413, b"too large"),
    ],
)
def test_a_span_that_a_node_refuses_is_halved_and_remembered(
    open_job: OpenJob, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LEAST_KEPT", 1)
    job = open_job()
    for _ in range(12):
        job.ledger.web3.provider.make_request("evm_mine", [])  # type: ignore[arg-type]
    most = job.ledger.height() // 4  # the session's chain is long, and each further span is a request
    with limited(job.ledger, most, refusal) as (ledger, spans):
        wanted = events.find_opened(job.ledger, address_of(job.requester), job.spec_digest)
        assert events.find_opened(ledger, address_of(job.requester), job.spec_digest) == wanted
        assert max(spans) > most
        spans.clear()
        assert events.find_opened(ledger, address_of(job.requester), job.spec_digest) == wanted
        assert max(spans) <= most


def test_a_node_that_refuses_single_blocks_is_believed(open_job: OpenJob) -> None:
    job = open_job()
    with (
        limited(job.ledger, 0, build_refusal("eth_getLogs is not available")) as (ledger, _spans),
        pytest.raises(NodeRefused),
    ):
        events.find_opened(ledger, address_of(job.requester), job.spec_digest)


@pytest.mark.parametrize(
    "refusal",
    [
        build_refusal("Too Many Requests", code=-32005),
        build_refusal("your app has exceeded its throughput", code=429),
        lambda _number: (429, b"slow down"),
        lambda _number: (502, b"<html>bad gateway</html>"),
    ],
)
def test_a_busy_node_is_not_asked_for_less(open_job: OpenJob, refusal: Refusal) -> None:
    """It would answer no smaller span either, and small spans are more requests, for as long as they are remembered."""
    job = open_job()
    with limited(job.ledger, 0, refusal) as (ledger, spans):
        with pytest.raises(NodeBusy):
            events.find_opened(ledger, address_of(job.requester), job.spec_digest)
        assert len(spans) == 1


@pytest.mark.parametrize(("status", "words"), [(429, "429 Too Many Requests"), (502, "502 Bad Gateway"), (503, "503")])
def test_a_busy_node_raises_chain_unreachable_with_its_answer(ledger: Ledger, status: int, words: str) -> None:
    with (
        serving(lambda *_asked: (status, b"")) as url,
        pytest.raises(ChainUnreachable, match=f"cannot answer now: it answers {words}") as busy,
    ):
        Ledger(connect_to_node(url), ledger.deployment).height()
    assert (busy.value.remedy != "") is (status == 429)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [(401, b"", "it answers 401"), (404, b"", "it answers 404"), (200, b"<html></html>", "answer is invalid")],
)
def test_a_server_that_is_no_node_is_refused_with_another_address_as_remedy(
    ledger: Ledger, status: int, body: bytes, words: str
) -> None:
    with serving(lambda *_asked: (status, body)) as url, pytest.raises(NodeRefused, match=words) as refused:
        Ledger(connect_to_node(url), ledger.deployment).height()
    assert "--rpc" in refused.value.remedy


@pytest.mark.parametrize("most", [1, 7])
@pytest.mark.parametrize(
    "refusal", [build_refusal("batch limit exceeded"), build_refusal("no", 400), lambda _number: (413, b"too large")]
)
def test_a_batch_that_a_node_refuses_is_halved_and_remembered(most: int, refusal: Refusal) -> None:
    sizes = list[int]()

    def answer(_method: str, _target: str, body: bytes) -> tuple[int, bytes]:
        asked = json.loads(body)
        calls = asked if isinstance(asked, list) else [asked]
        sizes.append(len(calls))
        if len(calls) > most:
            return refusal(calls[0]["id"])
        told = [{"jsonrpc": "2.0", "id": one["id"], "result": one["params"][0]["data"]} for one in calls]
        return 200, json.dumps(told if isinstance(asked, list) else told[0]).encode()

    data = [bytes([number]) for number in range(2 * BATCH + 1)]
    with serving(answer) as url:
        web3 = connect_to_node(url)
        assert call_views(web3, Address("0x" + "00" * 20), data, 1) == data
        assert max(sizes) == BATCH
        sizes.clear()
        assert call_views(web3, Address("0x" + "00" * 20), data, 1) == data
    assert max(sizes) <= most


def test_a_refusal_of_one_moment_lessens_batches_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a node behind a balancer that has not seen the block yet."""
    monkeypatch.setattr(rpc, "BATCHES", 2)
    sizes = list[int]()

    def answer(_method: str, _target: str, body: bytes) -> tuple[int, bytes]:
        asked = json.loads(body)
        calls = asked if isinstance(asked, list) else [asked]
        sizes.append(len(calls))
        if len(sizes) == 1:
            return build_refusal("header not found")(calls[0]["id"])
        told = [{"jsonrpc": "2.0", "id": one["id"], "result": one["params"][0]["data"]} for one in calls]
        return 200, json.dumps(told if isinstance(asked, list) else told[0]).encode()

    data = [bytes([number]) for number in range(BATCH)]
    with serving(answer) as url:
        web3 = connect_to_node(url)
        for _ in range(3):
            assert call_views(web3, Address("0x" + "00" * 20), data, 1) == data
    assert sizes == [20, 10, 10, 20, 20]


def test_a_call_that_a_node_refuses_raises_its_message_and_keeps_the_batch_size() -> None:
    sizes = list[int]()

    def answer(_method: str, _target: str, body: bytes) -> tuple[int, bytes]:
        asked = json.loads(body)
        calls = asked if isinstance(asked, list) else [asked]
        sizes.append(len(calls))
        error = {"code": -32000, "message": "missing trie node"}
        told = [{"jsonrpc": "2.0", "id": one["id"], "error": error} for one in calls]
        return 200, json.dumps(told if isinstance(asked, list) else told[0]).encode()

    with serving(answer) as url:
        web3 = connect_to_node(url)
        for _ in range(2):
            sizes.clear()
            with pytest.raises(NodeRefused, match="missing trie node"):
                call_views(web3, Address("0x" + "00" * 20), [b"1"] * BATCH, 1)
            assert sizes == [20, 10, 5, 2, 1]


def list_asked_spans(
    web3: Web3, last: int, refuses: Callable[[int, int], bool], first: int = 0
) -> list[tuple[int, int]]:
    """Reads all blocks from a node that refuses some ranges; returns first and last block of each request."""
    asked, answered = list[tuple[int, int]](), list[int]()

    def fetch_span(at: int, to: int) -> range:
        asked.append((at, to))
        if refuses(at, to):
            raise NodeRefused("no")
        return range(at, to + 1)

    answered += events.in_spans(web3, fetch_span, first, last)
    assert answered == list(range(first, last + 1))
    return asked


def test_a_small_range_that_was_refused_once_leaves_later_ones_as_wide() -> None:
    """The node behind a load balancer lacked the newest block for a moment."""
    web3, moments = connect_to_node("http://127.0.0.1:9"), iter([True])
    assert len(list_asked_spans(web3, 101, lambda _at, _to: next(moments, False), first=100)) == 3
    assert list_asked_spans(web3, LOG_SPAN - 1, lambda _at, _to: False) == [(0, LOG_SPAN - 1)]


def test_behind_a_full_block_spans_grow_again() -> None:
    web3 = connect_to_node("http://127.0.0.1:9")
    asked = list_asked_spans(web3, 20 * LOG_SPAN, lambda at, to: at <= 70 < to)
    assert len(asked) < 260
    assert min(to - at + 1 for at, to in asked[-100:-1]) >= events.LEAST_KEPT


def test_a_node_s_narrow_span_is_remembered_but_not_below_public_nodes() -> None:
    web3 = connect_to_node("http://127.0.0.1:9")
    list_asked_spans(web3, 9_999, lambda at, to: to - at >= 800)
    assert max(to - at + 1 for at, to in list_asked_spans(web3, 9_999, lambda _at, _to: False)) == 625
    list_asked_spans(web3, 9_999, lambda at, to: to - at >= 100)
    assert list_asked_spans(web3, 499, lambda _at, _to: False) == [(0, 499)]


@contextmanager
def too_full(ledger: Ledger, block: int, also: bytes) -> Iterator[Ledger]:
    """Yields the chain behind a node that refuses the logs of one block, but those of requests that hold `also`."""
    url = str(ledger.web3.provider.endpoint_uri)  # type: ignore[attr-defined]

    def answer(_method: str, _target: str, body: bytes) -> tuple[int, bytes]:
        asked = json.loads(body)
        if asked["method"] == "eth_getLogs" and (not also or also not in body):
            first, last = (int(asked["params"][0][name], 16) for name in ("fromBlock", "toBlock"))
            if first <= block <= last:
                return build_refusal("query returned more than 10000 results")(asked["id"])
        return 200, httpx.post(url, content=body, headers={"content-type": "application/json"}).content

    with serving(answer) as full_url:
        yield Ledger(connect_to_node(full_url), ledger.deployment)


def test_discovery_goes_on_without_a_block_that_is_full_of_events(open_job: OpenJob) -> None:
    """Anybody may fill a block with false announcements; readers of a market's own events believe the node."""
    first, full, second = open_job(), open_job(), open_job()
    wanted = [job.id for job in (first, second)]
    start, block, end = (events.opened_job(job.ledger, job.id).block for job in (first, full, second))
    with too_full(first.ledger, block, b'"address"') as ledger:
        assert [event.job for event in events.fetch_announced_jobs(ledger.web3, start, end)] == wanted
    with too_full(first.ledger, block, b"") as ledger, pytest.raises(NodeRefused):
        list(events.fetch_announced_jobs(ledger.web3, start, end))
