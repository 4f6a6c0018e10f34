"""Plays moves on the real contract, each a transaction at a second of its own, and reads all of its books at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import requests
from eth_keys.datatypes import PrivateKey

from contracts import calls
from contracts.calls import Call
from contracts.calls.encoding import to_market, to_token
from contracts.ledger import Ledger
from contracts.rpc import call_json_rpc
from contracts.transaction_types import Fees, Mined, Reverted
from contracts.transactions import send_transaction, sign_call
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, Amount
from tests.kit.contract_calls import wait_for_outcome
from tests.patience import PATIENCE_S

GAS = 2_000_000
PRICE = Fees(10**11, 1)


@dataclass
class Replay:
    """`now` is the next block's second. `rewind` forgets every move."""

    ledger: Ledger
    now: int = 0
    nonces: dict[Address, int] = field(default_factory=dict)
    _saved: str = ""

    def begin(self) -> None:
        self._saved = call_json_rpc(self.ledger.web3, "evm_snapshot")
        self.now, self.nonces = self.ledger.block().time + 1, {}

    def rewind(self) -> None:
        call_json_rpc(self.ledger.web3, "evm_revert", self._saved)

    def play(self, key: PrivateKey, call: Call) -> str:
        """The name of the error with which the contract refused; empty where it did not."""
        web3, sender = self.ledger.web3, address_of(key)
        nonce = self.nonces.get(sender)
        nonce = self.ledger.nonce(sender) if nonce is None else nonce
        call_json_rpc(web3, "evm_setNextBlockTimestamp", self.now)
        signed = sign_call(key, self.ledger.deployment.chain_id, nonce, call, GAS, PRICE)
        send_transaction(web3, signed.raw)
        self.now, self.nonces[sender] = self.now + 1, nonce + 1
        match wait_for_outcome(web3, signed.hash):
            case Mined():
                return ""
            case Reverted(name):
                return name
        raise AssertionError("no outcome")

    def read_words(self, asked: Sequence[Call]) -> list[list[int]]:
        """The words of each answer, all at one block."""
        url = str(self.ledger.web3.provider.endpoint_uri)  # type: ignore[attr-defined]
        body = [
            {"jsonrpc": "2.0", "id": at, "method": "eth_call", "params": [_question(call), "latest"]}
            for at, call in enumerate(asked)
        ]
        answers = sorted(requests.post(url, json=body, timeout=PATIENCE_S).json(), key=lambda answer: answer["id"])
        return [_words(bytes.fromhex(answer["result"][2:])) for answer in answers]

    def market(self, function: str, *arguments: object) -> Call:
        return to_market(self.ledger.deployment.contract, function, *arguments)

    def balance(self, holder: Address) -> Call:
        return to_token(self.ledger.deployment.token, "balanceOf", holder)

    def fund(self, minter: PrivateKey, key: PrivateKey, tokens: int) -> None:
        place, owner = self.ledger.deployment, address_of(key)
        call_json_rpc(self.ledger.web3, "anvil_setBalance", owner, hex(10**20))
        assert not self.play(minter, calls.mint(place.token, owner, Amount(tokens)))
        assert not self.play(key, calls.approve(place.token, place.contract, Amount(2**255)))


def _question(call: Call) -> dict[str, str | None]:
    return {"to": call.to, "data": "0x" + call.data.hex()}


def _words(answer: bytes) -> list[int]:
    return [int.from_bytes(answer[at : at + 32], "big") for at in range(0, len(answer), 32)]
