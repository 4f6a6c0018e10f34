"""The local chain's node behind the service's route: reads and signed transactions pass, and nothing else."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import deployment as deployments
from contracts.local import development_key, fund_gas
from contracts.rpc import BATCH, call_views, connect_to_node
from contracts.token_moves import PROBE, TokenMove, token_move
from contracts.transactions import chain_id
from gradmarket.market.signing import address_of, checksum_address
from gradmarket.network.chain_errors import NodeRefused
from requester.features.chain_door import node_door
from requester.features.chain_door.node_door import GAS, METHODS, PATH, UNREADABLE, encode_admitted
from requester.settings import RequesterSettings
from tests.api.api_service import Service, serving
from tests.onchain import NewKey, with_money

READ = {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": []}


@pytest.fixture(scope="module")
def service(anvil, deployment, tmp_path_factory) -> Iterator[Service]:  # type: ignore[no-untyped-def]
    data = tmp_path_factory.mktemp("chain-door")
    deployments.write_deployment(deployment, data / "deployment.json")
    with serving(RequesterSettings(data=data, rpc=anvil.url)) as made:
        yield made


def post_call(service: Service, request: Any) -> Any:
    return service.anyone.post(PATH, json=request).json()


def test_a_stranger_reads_the_chain_and_sends_what_it_signed(service: Service) -> None:
    web3 = connect_to_node(service.url + PATH)
    assert chain_id(web3) == service.context.chain_facts.chain_id
    ledger = service.context.ledger
    assert web3.eth.get_code(ledger.deployment.contract) == ledger.web3.eth.get_code(ledger.deployment.contract)
    key = development_key()
    account = web3.eth.account.from_key(key.to_bytes())
    sent = {"to": address_of(key), "value": 0, "gas": 21_000, "nonce": web3.eth.get_transaction_count(account.address),
            "maxFeePerGas": 10**10, "maxPriorityFeePerGas": 1, "chainId": chain_id(web3)}  # fmt: skip
    raw = account.sign_transaction(sent).raw_transaction
    assert web3.eth.wait_for_transaction_receipt(web3.eth.send_raw_transaction(raw))["status"] == 1


@pytest.mark.parametrize("method", ["anvil_setBalance", "evm_mine", "eth_sendTransaction", "debug_traceCall", "", 7])
def test_methods_of_the_node_s_owner_are_refused(service: Service, method: Any) -> None:
    refused = post_call(service, READ | {"method": method})
    assert refused["error"]["code"] == -32601
    assert post_call(service, [READ, READ | {"method": method}])["error"]["code"] == -32601, "a batch passes as a whole"


@pytest.mark.parametrize("names", [("anvil_nodeInfo", "eth_chainId"), ("eth_chainId", "anvil_nodeInfo")])
def test_a_doubled_method_name_is_read_alike_by_the_service_and_the_node(
    service: Service, names: tuple[str, str]
) -> None:
    first, last = names
    doubled = f'{{"jsonrpc": "2.0", "id": 1, "params": [], "method": "{first}", "method": "{last}"}}'
    answer = service.anyone.post(PATH, content=doubled.encode()).json()
    if last in METHODS:
        assert answer["result"] == hex(service.context.chain_facts.chain_id)
    else:
        assert answer["error"]["code"] == -32601


def test_the_chain_route_funds_no_gas(service: Service) -> None:
    with pytest.raises(NodeRefused):
        fund_gas(connect_to_node(service.url + PATH), address_of(development_key()), 1)


def test_a_batch_is_answered_in_order_and_a_long_one_is_refused(service: Service) -> None:
    assert [one["id"] for one in post_call(service, [READ | {"id": number} for number in (3, 1, 2)])] == [3, 1, 2]
    assert post_call(service, [READ] * (BATCH + 1))["error"]["code"] == -32600


def test_a_long_body_is_refused(service: Service) -> None:
    assert service.anyone.post(PATH, content=b" " * (1 << 18)).status_code == 413


CALL = {"jsonrpc": "2.0", "id": 7, "method": "eth_call"}
PUSH = {"to": "0x" + "5d" * 20, "data": "0x"}


@pytest.mark.parametrize("method", ["eth_call", "eth_estimateGas"])
@pytest.mark.parametrize(
    ("params", "why"),
    [
        ([PUSH, "latest", {PUSH["to"]: {"code": "0x5b5f56"}}], "no third parameter"),
        ([PUSH, "latest", None, {"gasLimit": "0xffffffffff"}], "no third parameter"),
        ([PUSH | {"gas": hex(GAS + 1)}], "gas"),
        ([PUSH | {"gasLimit": hex(GAS + 1)}], "gas"),
        ([PUSH | {"gas": "30000001"}], "gas"),
        ([PUSH | {"gas": 21000}], "gas"),
        ([PUSH | {"gas": None}], "gas"),
        ([PUSH | {"gas": "0x" + "f" * 5000}], "gas"),
        ({"transaction": PUSH}, "a list"),
        (None, "a list"),
        ([], "a list"),
        ([[PUSH["to"]]], "a list"),
    ],
)
def test_a_call_beyond_a_block_s_gas_or_with_code_of_its_own_is_refused(method: str, params: Any, why: str) -> None:
    refused = encode_admitted(json.dumps([READ, CALL | {"method": method, "params": params}]).encode())
    assert isinstance(refused, dict)
    assert refused["id"] == 7
    assert refused["error"]["code"] == -32602
    assert why in refused["error"]["message"]


def test_a_call_within_a_block_s_gas_passes() -> None:
    for params in ([PUSH], [PUSH, "latest"], [PUSH | {"gas": hex(GAS)}, {"blockNumber": "0x1"}], [{}, None]):
        assert isinstance(encode_admitted(json.dumps(CALL | {"params": params}).encode()), bytes)


def test_the_worker_s_own_look_at_a_token_passes_and_no_other_code_does(service: Service, new_key: NewKey) -> None:
    ledger, someone = service.context.ledger, PUSH["to"]
    rich = address_of(with_money(ledger, new_key(), 1001))
    web3 = connect_to_node(service.url + PATH)
    assert token_move(web3, ledger.deployment.token, rich, checksum_address(someone)) == TokenMove(500, 500, 500)
    for altered in ({"code": PROBE + "00"}, {"code": PROBE, "balance": "0x1"}, {"stateDiff": {}}, PROBE):
        asked = CALL | {"params": [PUSH, "latest", {someone: altered}]}
        assert isinstance(encode_admitted(json.dumps(asked).encode()), dict)
    two = CALL | {"params": [PUSH, "latest", {someone: {"code": PROBE}, rich: {"code": PROBE}}]}
    assert isinstance(encode_admitted(json.dumps(two).encode()), dict)


def test_our_own_batches_pass(service: Service) -> None:
    web3, ledger = connect_to_node(service.url + PATH), service.context.ledger
    instance = bytes.fromhex(str(ledger.market.functions.INSTANCE()._encode_transaction_data()).removeprefix("0x"))
    answers = call_views(web3, ledger.deployment.contract, [instance] * (2 * BATCH + 1), ledger.height())
    assert answers == [ledger.deployment.instance] * (2 * BATCH + 1)


def test_a_batch_asks_for_logs_once(service: Service) -> None:
    logs = READ | {"method": "eth_getLogs", "params": [{"fromBlock": "0x0", "toBlock": "0x0"}]}
    assert [one["id"] for one in post_call(service, [logs, READ | {"id": 2}])] == [1, 2]
    refused = post_call(service, [logs, READ, logs | {"id": 3}])
    assert (refused["id"], refused["error"]["code"]) == (3, -32602)
    assert "one eth_getLogs" in refused["error"]["message"]


def test_a_long_answer_is_not_kept_whole(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_door, "ANSWER", 2000)
    logs = READ | {"id": "logs", "method": "eth_getBlockByNumber", "params": ["latest", True]}
    assert "result" in post_call(service, READ)
    refused = post_call(service, [logs] * BATCH)
    assert refused["error"]["code"] == -32005
    assert "fewer blocks" in refused["error"]["message"]
    monkeypatch.setattr(node_door, "ANSWER", 200)
    assert post_call(service, logs)["id"] == "logs"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "[NaN]", '{"a": 1e999}'])
@pytest.mark.parametrize("name", ["id", "params", "more"])
def test_numbers_that_json_has_not_are_unreadable(number: str, name: str) -> None:
    body = f'{{"jsonrpc": "2.0", "method": "eth_chainId", "{name}": {number}}}'.encode()
    assert encode_admitted(body) == UNREADABLE
    assert encode_admitted(b"[" + body + b"]") == UNREADABLE


def test_such_a_number_is_answered(service: Service) -> None:
    body = b'{"jsonrpc": "2.0", "id": NaN, "method": "anvil_nodeInfo", "params": [1e999]}'
    assert service.anyone.post(PATH, content=body).json() == UNREADABLE


@given(st.recursive(st.none() | st.integers() | st.text(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)))
def test_only_named_methods_pass(asked: Any) -> None:
    assert isinstance(encode_admitted(json.dumps(asked).encode()), dict)
    assert isinstance(encode_admitted(json.dumps(asked).encode()[1:]), dict)


def test_the_methods_change_nothing_but_by_a_signature() -> None:
    assert {name for name in METHODS if "send" in name.lower() or "sign" in name.lower()} == {"eth_sendRawTransaction"}
    assert {name.partition("_")[0] for name in METHODS} == {"eth", "net", "web3"}
