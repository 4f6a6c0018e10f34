"""Deploys token and market, stores the deployment in a file, and verifies it on a chain."""

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_checksum_address
from web3 import Web3
from web3.contract import Contract

from contracts.artifact import load_artifact
from contracts.calls import build_creation_call
from contracts.rpc import node_errors
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.errors import Refused
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Address, Amount, Hash
from gradmarket.network.chain_errors import ContractRefused, ForeignChain, NodeRefused

MIN_WINDOW_S: Final = 60
TOKEN_SUPPLY: Final = Amount(10**9 * 10**18)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployed market and its token.

    `genesis` is the hash of block 0, `instance` the contract's INSTANCE, `block` the one that created the contract.
    """

    chain_id: int
    genesis: Hash
    contract: Address
    token: Address
    instance: Hash
    block: int

    @property
    def domain(self) -> Domain:
        return Domain(self.chain_id, self.contract, self.instance)


def deploy_market(
    web3: Web3, key: PrivateKey, min_window_s: int = MIN_WINDOW_S, decimals: int = 18, token: Address | None = None
) -> Deployment:
    """Deploys a market for `token`, or for a new test token with `key` as its minter and first owner.

    Raises Refused where the address has no token.
    """
    if token is None:
        token, _ = _create_contract(web3, key, "GradToken", "Gradient", "GRAD", decimals, TOKEN_SUPPLY)
    else:
        # Raises Refused unless there is a token that names its symbol and decimals, as amounts are written by
        asked = web3.eth.contract(to_checksum_address(token), abi=load_artifact("GradToken").abi).functions
        try:
            with node_errors():
                asked.symbol().call()
                asked.decimals().call()
        except (ContractRefused, ForeignChain, NodeRefused) as error:
            raise Refused(f"{token} is not a token on this chain", "name an ERC-20 with symbol and decimals") from error
    contract, block = _create_contract(web3, key, "GradMarket", token, min_window_s, secrets.token_bytes(32))
    with node_errors():
        instance = Hash(bytes(market_at(web3, contract).functions.INSTANCE().call()))
        return Deployment(web3.eth.chain_id, genesis_of(web3), contract, token, instance, block)


def verify_deployment(web3: Web3, deployment: Deployment) -> None:
    """Raises ForeignChain, naming the difference, unless this chain has exactly this deployment.

    The code is compared with the committed artifact's, with immutables masked. The instance distinguishes a restarted
    local chain from the one before, which had the same chain id and addresses.
    """
    with node_errors():
        _check_same_value("chain id", deployment.chain_id, web3.eth.chain_id)
        _check_same_value("genesis", deployment.genesis.hex(), genesis_of(web3).hex())
        if not load_artifact("GradMarket").matches(bytes(web3.eth.get_code(to_checksum_address(deployment.contract)))):
            raise ForeignChain("code", "the contract's", "other code, or none")
        functions = market_at(web3, deployment.contract).functions
        _check_same_value("instance", deployment.instance.hex(), bytes(functions.INSTANCE().call()).hex())
        _check_same_value("token", deployment.token, functions.token().call())


def genesis_of(web3: Web3) -> Hash:
    with node_errors():
        return Hash(bytes(web3.eth.get_block(0)["hash"]))


def market_at(web3: Web3, address: Address) -> Contract:
    """Returns the contract's views. The whole ABI takes five times as long (contracts.calls builds transactions)."""
    views = [entry for entry in load_artifact("GradMarket").abi if entry.get("stateMutability") in ("view", "pure")]
    return web3.eth.contract(to_checksum_address(address), abi=views, decode_tuples=True)


def market_events(web3: Web3, address: Address) -> Contract:
    """Returns the contract's events."""
    events = [entry for entry in load_artifact("GradMarket").abi if entry["type"] == "event"]
    return web3.eth.contract(to_checksum_address(address), abi=events, decode_tuples=True)


def token_at(web3: Web3, address: Address) -> Contract:
    return web3.eth.contract(to_checksum_address(address), abi=list(load_artifact("GradToken").abi))


def write_deployment(deployment: Deployment, path: Path) -> None:
    """Writes the deployment as JSON, replacing the file atomically."""
    fields = {name: value.hex() if isinstance(value, bytes) else value for name, value in asdict(deployment).items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    os.replace(draft, path)


def load_deployment(path: Path) -> Deployment:
    """Reads a deployment; raises FileNotFoundError if there is no file, Refused if it is no deployment."""
    data = path.read_bytes()
    try:
        fields = json.loads(data)
        hashes = {name: Hash(bytes.fromhex(fields[name])) for name in ("genesis", "instance")}
        return Deployment(**fields | hashes)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise Refused(f"{path} is no deployment's file", "put its copy back, such as a backup's") from error


def _create_contract(web3: Web3, key: PrivateKey, name: str, *arguments: object) -> tuple[Address, int]:
    receipt = require_receipt(execute_call(web3, key, build_creation_call(name, *arguments)))
    if receipt.created is None:
        raise ContractRefused("the transaction created no contract")
    return receipt.created, receipt.block


def _check_same_value(field: str, expected: object, actual: object) -> None:
    if expected != actual:
        raise ForeignChain(field, expected, actual)
