"""Calls of the token that the market uses; `mint` exists only in the test token."""

from contracts.calls.encoding import Call, to_token
from gradmarket.market.terms import Address, Amount


def approve(token: Address, spender: Address, amount: Amount) -> Call:
    return to_token(token, "approve", spender, amount)


def transfer(token: Address, to: Address, amount: Amount) -> Call:
    return to_token(token, "transfer", to, amount)


def mint(token: Address, to: Address, amount: Amount) -> Call:
    """Mints tokens; only the test token's deployer may send it."""
    return to_token(token, "mint", to, amount)
