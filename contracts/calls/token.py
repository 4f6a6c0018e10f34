"""The token, as far as the market uses it; `mint` is the test token's."""

from gradmarket.contracts.calls.encoding import Call, to_token
from gradmarket.market.terms import Address, Amount


def approve(token: Address, spender: Address, amount: Amount) -> Call:
    return to_token(token, "approve", spender, amount)


def transfer(token: Address, to: Address, amount: Amount) -> Call:
    return to_token(token, "transfer", to, amount)


def mint(token: Address, to: Address, amount: Amount) -> Call:
    """By the test token's deployer only."""
    return to_token(token, "mint", to, amount)
