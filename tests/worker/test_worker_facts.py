"""A market's facts of its token and contract: printed and counted with only where they make sense."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from contracts import calls
from contracts.deployment import TOKEN_SUPPLY, Deployment, genesis_of, market_at
from contracts.ledger import Ledger
from contracts.local import LocalChain
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.errors import Refused
from gradmarket.market.terms import Address, Hash
from gradmarket.market.wire.sign_in import ChainFacts
from tests.onchain import DEPLOYER
from tests.worker.fake_market import FakeMarket, other
from worker import Untrusted
from worker.markets.market_session import open_market_session
from worker.money.chain_view import LONGEST_WINDOW_S, check_facts, choose_rpc, connect_to_deployment
from worker.settings import WorkerSettings


@pytest.mark.parametrize(
    "changes",
    [
        {"symbol": ""},
        {"symbol": "GR\x1b[2JAD"},
        {"symbol": "GRAD\n10 paid"},
        {"symbol": "GRAD\u202e"},
        {"symbol": "G" * 17},
        {"decimals": -1},
        {"decimals": 37},
        {"decimals": 10**9},
        {"unit": "0"},
        {"unit": "-1"},
        {"unit": "1e9"},
        {"unit": "one"},
        {"unit": "9" * 40},
    ],
)
def test_a_token_that_makes_no_sense_is_not_worked_for(
    fake_market: FakeMarket, anvil: LocalChain, changes: dict[str, Any]
) -> None:
    honest = fake_market.facts(anvil.url)
    check_facts(honest)
    with pytest.raises(Untrusted):
        check_facts(other(honest, **changes))


def test_decimals_unlike_the_token_s_are_found(fake_market: FakeMarket, anvil: LocalChain) -> None:
    connect_to_deployment(anvil.url, fake_market.facts(anvil.url))
    fake_market.decimals = 6
    with pytest.raises(Untrusted, match="6 decimals, and the chain 18"):
        connect_to_deployment(anvil.url, fake_market.facts(anvil.url))


@pytest.mark.parametrize(
    ("market", "rpc", "chain"),
    [
        ("https://market.example", "http://127.0.0.1:8545", 31337),
        ("http://127.0.0.1:8700", "http://10.0.0.5:8545", 31337),
        ("http://127.0.0.1:8700", "http://node.example", 1337),
        ("http://127.0.0.1:8700", "http://127.0.0.1.example", 31337),
        ("http://127.0.0.1:8700", "http://127.0.0.1@node.example", 31337),
        ("http://127.0.0.1:8700", "not an address", 31337),
        ("http://127.0.0.1:8700", "http://127.0.0.1:8545", 1),
        (None, "http://169.254.169.254", 31337),
    ],
)
def test_a_market_s_node_is_not_believed_unless_both_are_on_this_machine(
    fake_market: FakeMarket, market: str | None, rpc: str, chain: int
) -> None:
    facts = other(fake_market.facts(rpc), chain_id=chain)
    with pytest.raises(Untrusted, match="--rpc"):
        choose_rpc(None, facts, market)
    assert choose_rpc("http://my.node", facts, market) == "http://my.node"


def test_an_archive_s_folder_is_recommended_as_no_node(fake_market: FakeMarket) -> None:
    facts = other(fake_market.facts("http://127.0.0.1:8545"), chain_id=31337)
    with pytest.raises(Untrusted, match=r"of your own for it \(--rpc\)$") as refused:
        choose_rpc(None, facts, "archives/job")
    assert refused.value.remedy == "name a node of that chain with --rpc"
    with pytest.raises(Untrusted, match=r"8700/chain will do"):
        choose_rpc(None, facts, "http://192.0.2.1:8700")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "[::1]", "localhost"])
def test_on_this_machine_a_local_chain_s_node_is_the_market_s(fake_market: FakeMarket, host: str) -> None:
    rpc = f"http://{host}:8545"
    assert choose_rpc(None, fake_market.facts(rpc), f"http://{host}:8700") == rpc


def hostile(anvil: LocalChain, fake_market: FakeMarket, least: int, symbol: str, decimals: int) -> ChainFacts:
    """Of the right code, with immutables and a token of its deployer's choice."""
    web3 = anvil.connect()
    token = _made(web3, calls.build_creation_call("GradToken", "Gradient", symbol, decimals, TOKEN_SUPPLY))
    contract = _made(web3, calls.build_creation_call("GradMarket", token, least, bytes(range(32))))
    instance = Hash(bytes(market_at(web3, contract).functions.INSTANCE().call()))
    place = Deployment(web3.eth.chain_id, genesis_of(web3), contract, token, instance, 0)
    Ledger(web3, place).verify()
    told = {"contract": contract, "token": token, "instance": instance, "symbol": symbol, "decimals": decimals}
    return other(fake_market.facts(anvil.url), **told)  # type: ignore[no-any-return]


def _made(web3: Any, call: calls.Call) -> Address:
    created = require_receipt(execute_call(web3, DEPLOYER, call)).created
    assert created is not None
    return created


@pytest.mark.parametrize(
    ("least", "symbol", "decimals"),
    [(LONGEST_WINDOW_S + 1, "GRAD", 18), (60, "GR\x1b[2JAD", 18), (60, "GRAD", 255)],
)
def test_a_hostile_deployment_of_the_right_code_is_not_worked_for(
    fake_market: FakeMarket, anvil: LocalChain, least: int, symbol: str, decimals: int
) -> None:
    with pytest.raises(Untrusted):
        connect_to_deployment(anvil.url, hostile(anvil, fake_market, least, symbol, decimals))


def test_an_honest_one_of_the_same_code_is(fake_market: FakeMarket, anvil: LocalChain) -> None:
    """The twin."""
    connect_to_deployment(anvil.url, hostile(anvil, fake_market, 60, "USDX", 6))


def test_pay_in_another_token_is_refused_before_anything_is_sent_or_written(
    fake_market: FakeMarket, anvil: LocalChain, tmp_path: Path
) -> None:
    settings = WorkerSettings(data=tmp_path / "new", min_per_hour="1 ETH")
    shared, market = Mock(settings=settings, features=()), Mock(spec=["origin"])
    with pytest.raises(Refused, match="'1 ETH' is no amount") as refused:
        open_market_session(shared, market, fake_market.facts(anvil.url))
    assert "--min-per-hour or GRADMARKET_WORKER_MIN_PER_HOUR" in refused.value.remedy
    assert not settings.data.exists()
