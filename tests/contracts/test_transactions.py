"""A transaction's outcome is mined, reverted or unknown, and unknown is not failure."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest
from eth_account.typed_transactions.typed_transaction import TypedTransaction
from hexbytes import HexBytes

from contracts import calls, local, transactions
from contracts.gas_price import compute_raised_fees
from contracts.ledger import Ledger
from contracts.local import CHAIN_ID, LocalChain, fund_gas
from contracts.rpc import call_json_rpc, connect_to_node, decode_refusal
from contracts.transaction_types import Fees, Mined, Reverted, Unknown
from contracts.transactions import (
    estimate_gas_limit,
    execute_call,
    fetch_fees,
    fetch_outcome,
    gas_price,
    offer_in,
    require_receipt,
    send_transaction,
    sign_call,
)
from gradmarket.market.signing import address_of, checksum_address
from gradmarket.market.terms import Address, Amount, Units
from gradmarket.network.chain_errors import ChainUnreachable, ContractRefused, LocalChainFailed, NodeRefused
from tests.kit.contract_calls import wait_for_outcome
from tests.lanes import FULL, leave_to_full
from tests.network.servers import serving
from tests.onchain import DEPLOYER, NewKey, OpenJob, with_money

SOMEONE = checksum_address("0x" + "4d" * 20)


def test_a_refused_call_is_named_and_not_sent(open_job: OpenJob) -> None:
    job = open_job(deposit=10)
    before = job.ledger.nonce(address_of(job.requester))
    with pytest.raises(ContractRefused) as caught:
        job.send(calls.withdraw_free(job.market, job.id, Units(11)))
    assert (caught.value.name, caught.value.arguments) == ("Overdrawn", (10,))
    assert job.ledger.nonce(address_of(job.requester)) == before


def test_a_revert_on_the_chain_is_an_outcome_with_its_name(open_job: OpenJob) -> None:
    job = open_job(deposit=10)
    web3, call = job.ledger.web3, calls.withdraw_free(job.market, job.id, Units(11))
    nonce = job.ledger.nonce(address_of(job.requester))
    signed = sign_call(job.requester, CHAIN_ID, nonce, call, 200_000, fetch_fees(web3))
    send_transaction(web3, signed.raw)
    found = wait_for_outcome(web3, signed.hash)
    assert isinstance(found, Reverted)
    assert found.name == "Overdrawn"
    with pytest.raises(ContractRefused, match="Overdrawn"):
        require_receipt(found)


def test_the_token_s_errors_have_names_too(open_job: OpenJob, new_key: NewKey) -> None:
    job = open_job()
    call = calls.transfer(job.ledger.deployment.token, SOMEONE, Amount(1))
    with pytest.raises(ContractRefused, match="ERC20InsufficientBalance"):
        estimate_gas_limit(job.ledger.web3, address_of(new_key()), call)


def test_no_gas_money_is_the_node_s_refusal(ledger: Ledger, new_key: NewKey) -> None:
    call = calls.set_payout(ledger.deployment.contract, SOMEONE)
    key = new_key()
    signed = sign_call(key, CHAIN_ID, 0, call, 100_000, fetch_fees(ledger.web3))
    with pytest.raises(NodeRefused, match=r"[Ii]nsufficient funds"):
        send_transaction(ledger.web3, signed.raw)


def test_sending_again_is_harmless(open_job: OpenJob) -> None:
    job = open_job(deposit=10)
    web3, call = job.ledger.web3, calls.withdraw_free(job.market, job.id, Units(4))
    signed = sign_call(
        job.requester, CHAIN_ID, job.ledger.nonce(address_of(job.requester)), call, 200_000, fetch_fees(web3)
    )
    send_transaction(web3, signed.raw)
    first = wait_for_outcome(web3, signed.hash)
    send_transaction(web3, signed.raw)
    assert first == wait_for_outcome(web3, signed.hash)
    assert job.ledger.free(job.id) == 6


def test_a_transaction_that_is_not_mined_is_unknown(own_ledger: Ledger, new_key: NewKey) -> None:
    web3 = own_ledger.web3
    key = with_money(own_ledger, new_key())
    call_json_rpc(web3, "evm_setAutomine", False)
    found = execute_call(web3, key, calls.set_payout(own_ledger.deployment.contract, SOMEONE), timeout_s=0.0)
    assert isinstance(found, Unknown)
    with pytest.raises(ChainUnreachable):
        require_receipt(found)
    call_json_rpc(web3, "evm_mine")
    assert isinstance(fetch_outcome(web3, found.hash), Mined)
    assert isinstance(fetch_outcome(web3, found.hash, confirmations=2), Unknown)
    call_json_rpc(web3, "evm_mine")
    assert isinstance(fetch_outcome(web3, found.hash, confirmations=2), Mined)


def test_a_replacement_overtakes_a_stuck_transaction(own_ledger: Ledger, new_key: NewKey) -> None:
    web3 = own_ledger.web3
    key = with_money(own_ledger, new_key())
    call_json_rpc(web3, "evm_setAutomine", False)
    call = calls.set_payout(own_ledger.deployment.contract, SOMEONE)
    nonce, old = own_ledger.nonce(address_of(key)), fetch_fees(web3)
    stuck = sign_call(key, CHAIN_ID, nonce, call, 100_000, old)
    send_transaction(web3, stuck.raw)
    assert compute_raised_fees(old, gas_price(web3), overdue=False) is None
    new = compute_raised_fees(old, gas_price(web3), overdue=True)
    assert new is not None
    faster = sign_call(key, CHAIN_ID, nonce, call, 100_000, new)
    send_transaction(web3, faster.raw)
    call_json_rpc(web3, "evm_mine")
    assert isinstance(fetch_outcome(web3, stuck.hash), Unknown)
    assert isinstance(fetch_outcome(web3, faster.hash), Mined)


def test_a_transaction_that_the_base_fee_overtakes_is_replaced_while_it_is_waited_for(
    own_ledger: Ledger, new_key: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "RAISE_S", 0.0)
    web3, key = own_ledger.web3, with_money(own_ledger, new_key())
    call_json_rpc(web3, "evm_setAutomine", False)
    with ThreadPoolExecutor(1) as beside:
        sent = beside.submit(execute_call, web3, key, calls.set_payout(own_ledger.deployment.contract, SOMEONE))
        while web3.eth.get_transaction_count(address_of(key), "pending") == web3.eth.get_transaction_count(
            address_of(key)
        ):
            assert not sent.done()
        while not sent.done():  # the first block is too dear for it, and shows the price, which empty ones would lower
            call_json_rpc(web3, "anvil_setNextBlockBaseFeePerGas", hex(10**12))
            call_json_rpc(web3, "evm_mine")
        assert isinstance(sent.result(), Mined)
    assert own_ledger.payout_of(address_of(key)) == SOMEONE


def test_a_stuck_transaction_does_not_hold_up_the_next_call(
    own_ledger: Ledger, new_key: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "STUCK_S", 0.0)
    web3, key = own_ledger.web3, with_money(own_ledger, new_key())
    call_json_rpc(web3, "evm_setAutomine", False)
    call = calls.set_payout(own_ledger.deployment.contract, SOMEONE)
    stuck = execute_call(web3, key, call, timeout_s=0.0)
    assert isinstance(stuck, Unknown)
    call_json_rpc(web3, "anvil_setNextBlockBaseFeePerGas", hex(10**12))
    call_json_rpc(web3, "evm_mine")
    call_json_rpc(web3, "evm_setAutomine", True)
    assert isinstance(execute_call(web3, key, call), Mined)
    assert own_ledger.payout_of(address_of(key)) == SOMEONE


@contextmanager
def strict(ledger: Ledger) -> Iterator[tuple[Ledger, list[str]]]:
    """Yields the chain behind a node with go-ethereum's rule for replacements, and the methods that it was asked.

    Both fees must be a tenth higher (core/txpool, PriceBump).
    """
    url, methods, known = str(ledger.web3.provider.endpoint_uri), list[str](), dict[int, Fees]()  # type: ignore[attr-defined]

    def answer(_method: str, _target: str, body: bytes) -> tuple[int, bytes]:
        asked = json.loads(body)
        methods.append(" ".join([asked["method"], *(word for word in asked["params"] if word == "latest")]))
        if asked["method"] == "eth_sendRawTransaction":
            raw = bytes(HexBytes(asked["params"][0]))
            nonce, new = int(TypedTransaction.from_bytes(HexBytes(raw)).as_dict()["nonce"]), offer_in(raw)[1]
            old = known.get(nonce, Fees(0, 0))
            if 10 * new.most < 11 * old.most or 10 * new.tip < 11 * old.tip:
                error = {"code": -32000, "message": "replacement transaction underpriced"}
                return 200, json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}).encode()
            known[nonce] = new
        return 200, httpx.post(url, content=body, headers={"content-type": "application/json"}).content

    with serving(answer) as strict_url:
        yield Ledger(connect_to_node(strict_url), ledger.deployment), methods


@FULL
def test_a_stuck_transaction_with_a_high_tip_is_outbid_at_once(
    own_ledger: Ledger, new_key: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tip is beyond the usual one: the first offer is refused, and so are some raises."""
    monkeypatch.setattr(transactions, "STUCK_S", 0.0)
    key = with_money(own_ledger, new_key())
    call, usual = calls.set_payout(own_ledger.deployment.contract, SOMEONE), fetch_fees(own_ledger.web3)
    with strict(own_ledger) as (ledger, methods):
        call_json_rpc(ledger.web3, "evm_setAutomine", False)
        tip = 3 * usual.tip
        stuck = sign_call(key, CHAIN_ID, ledger.nonce(address_of(key)), call, 100_000, Fees(usual.most + tip, tip))
        send_transaction(ledger.web3, stuck.raw)
        methods.clear()
        sent = execute_call(ledger.web3, key, call, timeout_s=0.0)
        call_json_rpc(ledger.web3, "evm_mine")
        assert isinstance(fetch_outcome(ledger.web3, sent.hash), Mined)
    assert methods.count("eth_sendRawTransaction") > 3
    assert methods.count("eth_getTransactionCount latest") == 1, "it waits once for what is stuck"
    assert own_ledger.payout_of(address_of(key)) == SOMEONE


@FULL
def test_a_stuck_transaction_with_excessive_fees_is_named_at_once(
    own_ledger: Ledger, new_key: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "STUCK_S", 0.0)
    key = with_money(own_ledger, new_key())
    call, usual = calls.set_payout(own_ledger.deployment.contract, SOMEONE), fetch_fees(own_ledger.web3)
    with strict(own_ledger) as (ledger, methods):
        call_json_rpc(ledger.web3, "evm_setAutomine", False)
        dear = Fees(20 * usual.most, 20 * usual.tip)
        send_transaction(ledger.web3, sign_call(key, CHAIN_ID, ledger.nonce(address_of(key)), call, 100_000, dear).raw)
        with pytest.raises(NodeRefused, match=r"a transaction that waits \(nonce 1\) offers more than \d+ wei"):
            execute_call(ledger.web3, key, call)
    assert methods.count("eth_getTransactionCount latest") == 2, "one of them was the test's"


def test_on_a_chain_without_a_base_fee_transactions_are_legacy_ones(
    new_key: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = local._build_anvil_command
    monkeypatch.setattr(local, "_build_anvil_command", lambda *given: [*command(*given), "--hardfork", "berlin"])
    chain = LocalChain.start(None)
    try:
        web3, key = chain.connect(), new_key()
        assert "baseFeePerGas" not in web3.eth.get_block("latest")
        fund_gas(web3, address_of(key), 10**18)
        receipt = require_receipt(execute_call(web3, key, calls.Call(SOMEONE, b"")))
        assert int(web3.eth.get_transaction(HexBytes(receipt.hash))["type"]) == 0
        old = fetch_fees(web3)
        assert (old.legacy, old.most) == (True, old.tip)
        call_json_rpc(web3, "evm_setAutomine", False)
        stuck = sign_call(key, CHAIN_ID, 1, calls.Call(SOMEONE, b""), 30_000, old)
        send_transaction(web3, stuck.raw)
        new = compute_raised_fees(old, gas_price(web3), overdue=True)
        assert new is not None
        faster = sign_call(key, CHAIN_ID, 1, calls.Call(SOMEONE, b""), 30_000, new)
        send_transaction(web3, faster.raw)
        call_json_rpc(web3, "evm_mine")
        assert isinstance(fetch_outcome(web3, faster.hash), Mined)
    finally:
        chain.stop()


def test_the_offer_is_read_from_a_transaction_of_an_earlier_version(new_key: NewKey) -> None:
    call = calls.build_creation_call("GradToken", "a", "b", 18, 0)
    assert offer_in(sign_call(new_key(), CHAIN_ID, 0, call, 90_000, Fees(9, 3)).raw) == (90_000, Fees(9, 3))


def test_a_silent_node_leaves_the_outcome_unknown(open_job: OpenJob) -> None:
    job = open_job()
    silent = connect_to_node("http://127.0.0.1:9", timeout_s=1)
    assert isinstance(fetch_outcome(silent, "0x" + "00" * 32), Unknown)
    with pytest.raises(ChainUnreachable):
        execute_call(silent, job.requester, calls.refund(job.market, job.id))


@pytest.mark.parametrize("method", leave_to_full(["eth_getTransactionReceipt", "eth_getTransactionByHash"]))
def test_a_node_that_hides_a_sent_transaction_is_asked_again(own_ledger: Ledger, new_key: NewKey, method: str) -> None:
    """A sender that took that for a failure would send the same a second time."""
    key, url = with_money(own_ledger, new_key()), str(own_ledger.web3.provider.endpoint_uri)  # type: ignore[attr-defined]
    asked = list[str]()

    def answer(_method: str, _target: str, body: bytes) -> tuple[int, bytes]:
        request = json.loads(body)
        asked.append(request["method"])
        if request["method"] == method and asked.count(method) <= 2:
            error = {"code": -32603, "message": "internal error"}
            return 200, json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode()
        return 200, httpx.post(url, content=body, headers={"content-type": "application/json"}).content

    nonce = own_ledger.nonce(address_of(key))
    with serving(answer) as refusing:
        place = own_ledger.deployment
        done = execute_call(connect_to_node(refusing), key, calls.approve(place.token, place.contract, Amount(1)))
    assert isinstance(done, Mined)
    assert method in asked
    assert own_ledger.nonce(address_of(key)) == nonce + 1


def test_senders_of_one_key_at_once_all_get_through(own_ledger: Ledger, new_key: NewKey) -> None:
    """Each in its own process knows nothing of the other's nonces."""
    key, token = with_money(own_ledger, new_key(), tokens=100), own_ledger.deployment.token
    url = str(own_ledger.web3.provider.endpoint_uri)  # type: ignore[attr-defined]
    to = [Address(f"0x{number + 1:040x}") for number in range(8)]

    def pay(address: Address) -> None:
        require_receipt(
            execute_call(connect_to_node(url), key, calls.transfer(token, address, Amount(3)), timeout_s=10.0)
        )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(pay, to))
    assert [own_ledger.balance(address) for address in to] == [3] * 8


def test_revert_data_by_name() -> None:
    assert decode_refusal("0x").name == "revert"
    assert decode_refusal(None, "execution reverted: why").name == "execution reverted: why"
    assert decode_refusal("0x12345678").arguments == ("0x12345678",)
    assert decode_refusal("0x" + "00" * 3).name == "revert"


def test_a_known_error_with_broken_arguments_keeps_its_name(open_job: OpenJob) -> None:
    job = open_job(deposit=1)
    with pytest.raises(ContractRefused) as caught:
        job.send(calls.withdraw_free(job.market, job.id, Units(2)))
    web3_error = caught.value.__cause__
    assert web3_error is not None
    data = web3_error.data  # type: ignore[attr-defined]
    assert decode_refusal(data[:-2]).name == "Overdrawn"


def test_gas_is_given_away_on_local_chains_only(own_ledger: Ledger) -> None:
    call_json_rpc(own_ledger.web3, "anvil_setChainId", 11155111)
    with pytest.raises(LocalChainFailed):
        fund_gas(own_ledger.web3, address_of(DEPLOYER), 1)


def test_a_changed_fee_is_another_transaction(new_key: NewKey) -> None:
    key, price = new_key(), Fees(10, 1)
    call = calls.set_payout(SOMEONE, SOMEONE)
    one, other = (sign_call(key, CHAIN_ID, 0, call, 90_000, each) for each in (price, replace(price, most=11)))
    assert one.hash != other.hash
