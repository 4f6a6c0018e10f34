"""Encodes calldata by the committed artifacts' ABI."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from eth_abi.abi import encode
from eth_utils.abi import collapse_if_tuple
from eth_utils.crypto import keccak

from contracts.artifact import load
from gradmarket.market.terms import Address


@dataclass(frozen=True, slots=True)
class Call:
    """A call with `data` of the contract at `to`, or a contract's creation if `to` is None."""

    to: Address | None
    data: bytes


def construct(contract: str, *arguments: Any) -> Call:
    """Returns the call that creates `GradMarket` or `GradToken`."""
    artifact = load(contract)
    types = next(_types(item) for item in artifact.abi if item["type"] == "constructor")
    return Call(None, artifact.bytecode + encode(types, arguments))


def to_market(market: Address, function: str, *arguments: Any) -> Call:
    return Call(market, _encoded("GradMarket", function, arguments))


def to_token(token: Address, function: str, *arguments: Any) -> Call:
    return Call(token, _encoded("GradToken", function, arguments))


def _encoded(contract: str, function: str, arguments: Sequence[Any]) -> bytes:
    selector, types = _function(contract, function)
    return selector + encode(types, arguments)


@cache
def _function(contract: str, function: str) -> tuple[bytes, tuple[str, ...]]:
    """Returns selector and argument types; no function used here is overloaded."""
    item = next(item for item in load(contract).abi if item["type"] == "function" and item["name"] == function)
    types = _types(item)
    return keccak(text=f"{function}({','.join(types)})")[:4], types


def _types(item: Any) -> tuple[str, ...]:
    return tuple(collapse_if_tuple(argument) for argument in item["inputs"])
