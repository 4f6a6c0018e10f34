"""A token that takes a fee on top of its moves, or loses a part of them, and a market over it."""

import json
from pathlib import Path

from eth_abi.abi import encode
from eth_utils.crypto import keccak
from web3 import Web3

from contracts import calls
from contracts.deployment import Deployment, genesis_of, market_at
from contracts.ledger import Ledger
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.terms import Address, Hash
from tests.onchain import DEPLOYER

CODE = json.loads((Path(__file__).parent / "vectors" / "fee_token.json").read_text())["bytecode"]
"""Of contracts/test/tokens/FeeToken.sol, by solc 0.8."""


def market_over_fee_token(web3: Web3) -> Ledger:
    """The genuine contract over such a token, which takes no fee yet."""
    token = _made(web3, calls.Call(None, bytes.fromhex(CODE[2:])))
    contract = _made(web3, calls.build_creation_call("GradMarket", token, 60, bytes(range(32))))
    instance = Hash(bytes(market_at(web3, contract).functions.INSTANCE().call()))
    block = web3.eth.block_number
    return Ledger(web3, Deployment(web3.eth.chain_id, genesis_of(web3), contract, token, instance, block))


def takes(ledger: Ledger, top: int, lost: int) -> None:
    """Sets the percent on top from the payer, and the percent that get lost."""
    data = keccak(text="setFees(uint256,uint256)")[:4] + encode(["uint256", "uint256"], [top, lost])
    require_receipt(execute_call(ledger.web3, DEPLOYER, calls.Call(ledger.deployment.token, data)))


def _made(web3: Web3, call: calls.Call) -> Address:
    created = require_receipt(execute_call(web3, DEPLOYER, call)).created
    assert created is not None
    return created
