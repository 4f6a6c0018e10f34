"""A deployment is recognised again, and nothing else is taken for it."""

from dataclasses import replace
from pathlib import Path

import pytest
from eth_utils.address import to_checksum_address

from contracts.deployment import (
    Deployment,
    deploy_market,
    load_deployment,
    verify_deployment,
    write_deployment,
)
from contracts.ledger import Ledger
from contracts.local import LocalChain
from contracts.rpc import call_json_rpc, connect_to_node
from gradmarket.market.errors import Refused
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, Hash
from gradmarket.network.chain_errors import ChainUnreachable, ForeignChain
from tests.onchain import DEPLOYER


def test_the_address_book_is_read_back(deployment: Deployment, ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "book" / "chain.json"
    write_deployment(deployment, path)
    assert load_deployment(path) == deployment
    verify_deployment(ledger.web3, load_deployment(path))


@pytest.mark.parametrize(
    "written",
    [b"", b"{}", b"[]", b"nonsense", b"\xff\x00", b"[" * 100_000, b'{"genesis": "zz", "instance": ""}'],
    ids=range(7),
)
def test_a_malformed_deployment_file_is_refused(tmp_path: Path, written: bytes) -> None:
    (tmp_path / "chain.json").write_bytes(written)
    with pytest.raises(Refused, match=r"chain\.json is no deployment's file"):
        load_deployment(tmp_path / "chain.json")


def test_each_difference_is_named(deployment: Deployment, ledger: Ledger) -> None:
    other = Hash(bytes(32))
    changes = {
        "chain id": replace(deployment, chain_id=1),
        "genesis": replace(deployment, genesis=other),
        "instance": replace(deployment, instance=other),
        "code": replace(deployment, contract=deployment.token),
        "token": replace(deployment, token=deployment.contract),
    }
    for field, changed in changes.items():
        with pytest.raises(ForeignChain) as caught:
            verify_deployment(ledger.web3, changed)
        assert caught.value.field == field


def test_an_address_without_code_is_no_deployment(deployment: Deployment, ledger: Ledger) -> None:
    with pytest.raises(ForeignChain):
        verify_deployment(ledger.web3, replace(deployment, contract=address_of(DEPLOYER)))


def test_a_market_of_a_token_that_exists_pays_in_it(deployment: Deployment, ledger: Ledger) -> None:
    made = deploy_market(ledger.web3, DEPLOYER, token=deployment.token)
    assert made.token == deployment.token
    assert made.contract != deployment.contract
    verify_deployment(ledger.web3, made)
    for stranger in (deployment.contract, Address("0x" + "11" * 20)):
        with pytest.raises(Refused, match="is not a token on this chain"):
            deploy_market(ledger.web3, DEPLOYER, token=stranger)


def test_one_changed_instruction_is_found(own_ledger: Ledger) -> None:
    web3, place = own_ledger.web3, own_ledger.deployment
    code = bytearray(web3.eth.get_code(to_checksum_address(place.contract)))
    code[-60] ^= 1
    call_json_rpc(web3, "anvil_setCode", place.contract, "0x" + code.hex())
    with pytest.raises(ForeignChain) as caught:
        verify_deployment(web3, place)
    assert caught.value.field == "code"


def test_a_chain_started_anew_is_foreign_though_its_addresses_are_the_same(own_ledger: Ledger) -> None:
    anew = LocalChain.start(None)
    try:
        web3, known = anew.connect(), own_ledger.deployment
        again = deploy_market(web3, DEPLOYER)
        assert (again.contract, again.chain_id) == (known.contract, known.chain_id)
        with pytest.raises(ForeignChain):
            verify_deployment(web3, known)
        with pytest.raises(ForeignChain, match="instance"):
            verify_deployment(web3, replace(known, genesis=again.genesis))
    finally:
        anew.stop()


def test_no_node_is_no_foreign_chain(deployment: Deployment) -> None:
    with pytest.raises(ChainUnreachable):
        verify_deployment(connect_to_node("http://127.0.0.1:9", timeout_s=1), deployment)
