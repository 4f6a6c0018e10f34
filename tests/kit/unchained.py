"""A ledger without a chain, for a service's stages alone: a test brings the money by hand."""

from typing import Any, Final, NoReturn

from eth_utils.crypto import keccak
from web3 import Web3
from web3.providers import BaseProvider
from web3.types import RPCEndpoint

from contracts.deployment import Deployment
from contracts.ledger import Ledger
from contracts.local import CHAIN_ID
from gradmarket.market.terms import Address, Hash

CONTRACT, TOKEN = (Address("0x" + digit * 40) for digit in "12")
NOWHERE: Final = Deployment(CHAIN_ID, Hash(keccak(b"genesis")), CONTRACT, TOKEN, Hash(keccak(b"instance")), block=2)


class NoNode(BaseProvider):
    def make_request(self, method: RPCEndpoint, params: Any) -> NoReturn:
        raise AssertionError(f"a stage asked the chain: {method}")


def unchained() -> Ledger:
    return Ledger(Web3(NoNode()), NOWHERE)
