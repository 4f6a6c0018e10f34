"""The local chain's node behind the service's door: what reads passes, and what is signed; nothing else does."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import deployment as deployments
from contracts.local import development_key, fund_gas
from contracts.rpc import connect_to_node
from contracts.transactions import chain_id
from gradmarket.market.signing import address_of
from gradmarket.network.chain_errors import NodeRefused
from requester.edge.chain_door import BATCH, METHODS, PATH, find_refusal
from requester.settings import RequesterSettings
from tests.api.api_service import Service, serving

READ = {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": []}


@pytest.fixture(scope="module")
def service(anvil, deployment, tmp_path_factory) -> Iterator[Service]:  # type: ignore[no-untyped-def]
    data = tmp_path_factory.mktemp("chain-door")
    deployments.write_deployment(deployment, data / "deployment.json")
    with serving(RequesterSettings(data=data, rpc=anvil.url)) as made:
        yield made


def ask(service: Service, request: Any) -> Any:
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
def test_what_is_the_node_s_owner_s_alone_does_not_pass(service: Service, method: Any) -> None:
    refused = ask(service, READ | {"method": method})
    assert refused["error"]["code"] == -32601
    assert ask(service, [READ, READ | {"method": method}])["error"]["code"] == -32601, "a batch passes as a whole"


@pytest.mark.parametrize("names", [("anvil_nodeInfo", "eth_chainId"), ("eth_chainId", "anvil_nodeInfo")])
def test_of_a_doubled_name_the_node_reads_what_the_door_read(service: Service, names: tuple[str, str]) -> None:
    first, last = names
    doubled = f'{{"jsonrpc": "2.0", "id": 1, "params": [], "method": "{first}", "method": "{last}"}}'
    answer = service.anyone.post(PATH, content=doubled.encode()).json()
    if last in METHODS:
        assert answer["result"] == hex(service.context.chain_facts.chain_id)
    else:
        assert answer["error"]["code"] == -32601


def test_nobody_is_given_gas_through_it(service: Service) -> None:
    with pytest.raises(NodeRefused):
        fund_gas(connect_to_node(service.url + PATH), address_of(development_key()), 1)


def test_a_batch_is_answered_in_order_and_a_long_one_is_refused(service: Service) -> None:
    assert [one["id"] for one in ask(service, [READ | {"id": number} for number in (3, 1, 2)])] == [3, 1, 2]
    assert ask(service, [READ] * (BATCH + 1))["error"]["code"] == -32600


def test_a_long_body_is_refused(service: Service) -> None:
    assert service.anyone.post(PATH, content=b" " * (1 << 18)).status_code == 413


@given(st.recursive(st.none() | st.integers() | st.text(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)))
def test_only_named_methods_pass(asked: Any) -> None:
    assert find_refusal(json.dumps(asked).encode()) is not None
    assert find_refusal(json.dumps(asked).encode()[1:]) is not None


def test_the_methods_change_nothing_but_by_a_signature() -> None:
    assert {name for name in METHODS if "send" in name.lower() or "sign" in name.lower()} == {"eth_sendRawTransaction"}
    assert {name.partition("_")[0] for name in METHODS} == {"eth", "net", "web3"}
