"""Measures the amounts that a token's transfer really moves, in a call that changes nothing, before any money is at
stake.

The contract counts its payments by the amounts that it requested from the token. A token that takes a fee on top of
that spends the money of other jobs; one that loses a part pays workers less than they were promised. `eth_call` runs a
few instructions at the holder's address, whose code it replaces for this call alone (the state override of
go-ethereum's eth_call, which most nodes have): they transfer half of the holder's balance, and return both balances'
changes.
"""

from dataclasses import dataclass
from typing import Final

from eth_utils.address import to_checksum_address
from hexbytes import HexBytes
from web3 import Web3
from web3.exceptions import Web3Exception
from web3.types import StateOverride

from contracts.deployment import token_at
from contracts.rpc import node_errors
from gradmarket.market.signing import encode_word
from gradmarket.market.terms import Address
from gradmarket.network.chain_errors import ChainError

_TOKEN, _TO, _AMOUNT = "5f35", "602035", "604035"
"""Push the words of the input: token, recipient and amount."""


def _assemble_balance_call(of: str, at: str) -> str:
    """Instructions that store balanceOf(of) at this byte of the memory."""
    asked = f"6370a0823160e01b5f52{of}600452"
    return f"{asked}602060{at}60245f{_TOKEN}5afa50"


PROBE: Final = "0x" + "".join(
    (
        _assemble_balance_call("30", "80"),
        _assemble_balance_call(_TO, "a0"),
        f"63a9059cbb60e01b5f52{_TO}600452{_AMOUNT}6024525f5f60445f5f{_TOKEN}5af1610120" + "52",
        _assemble_balance_call("30", "c0"),
        _assemble_balance_call(_TO, "e0"),
        "60c05160805103610140" + "52",
        "60a05160e05103610160" + "52",
        "6060610120f3",
    )
)
"""Code that returns whether the transfer succeeded, the holder's loss, and the recipient's gain."""


@dataclass(frozen=True, slots=True)
class TokenMove:
    stated: int
    spent: int
    arrived: int

    @property
    def fault(self) -> str:
        """Returns the fault of such a token; empty for one that moves exactly the requested amount."""
        if self.spent > self.stated:
            return f"takes {self.spent} from a payer of {self.stated}: the difference would be other jobs' money"
        if self.arrived < self.stated:
            return f"delivers {self.arrived} of {self.stated}: workers would get less than promised"
        return ""


def token_move(web3: Web3, token: Address, holder: Address, to: Address) -> TokenMove | None:
    """Returns the amounts that a transfer of half of the holder's balance would move; None where they are unknown.

    They are unknown where the holder has next to nothing, the token refuses, or the node replaces no code in a call.
    """
    try:
        with node_errors():
            half = int(token_at(web3, token).functions.balanceOf(to_checksum_address(holder)).call()) // 2
            if half == 0 or holder == to:
                return None
            override: StateOverride = {to_checksum_address(holder): {"code": PROBE}}  # type: ignore[typeddict-item]
            asked = HexBytes(encode_word(token) + encode_word(to) + encode_word(half))
            answer = bytes(web3.eth.call({"to": to_checksum_address(holder), "data": asked}, "latest", override))
    except (ChainError, Web3Exception):
        return None
    went, spent, arrived = (int.from_bytes(answer[at : at + 32], "big") for at in (0, 32, 64))
    return TokenMove(half, spent, arrived) if went == 1 and len(answer) == 96 else None
