"""Encodes calldata by the committed artifacts' ABI."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from eth_abi.abi import encode
from eth_utils.abi import collapse_if_tuple
from eth_utils.crypto import keccak

from contracts.artifact import load_artifact
from gradmarket.market.terms import Address


@dataclass(frozen=True, slots=True)
class Call:
    """A call with `data` of the contract at `to`, or a contract's creation if `to` is None."""

    to: Address | None
    data: bytes


def build_creation_call(contract: str, *arguments: Any) -> Call:
    """Returns the call that creates `GradMarket` or `GradToken`."""
    artifact = load_artifact(contract)
    types = next(_list_argument_types(item) for item in artifact.abi if item["type"] == "constructor")
    return Call(None, artifact.bytecode + encode(types, arguments))


def to_market(market: Address, function: str, *arguments: Any) -> Call:
    return Call(market, _encode_call("GradMarket", function, arguments))


def to_token(token: Address, function: str, *arguments: Any) -> Call:
    return Call(token, _encode_call("GradToken", function, arguments))


def _encode_call(contract: str, function: str, arguments: Sequence[Any]) -> bytes:
    selector, types = _load_selector_and_types(contract, function)
    return selector + encode(types, arguments)


@cache
def _load_selector_and_types(contract: str, function: str) -> tuple[bytes, tuple[str, ...]]:
    """Returns selector and argument types; no function used here is overloaded."""
    item = next(item for item in load_artifact(contract).abi if item["type"] == "function" and item["name"] == function)
    types = _list_argument_types(item)
    return keccak(text=f"{function}({','.join(types)})")[:4], types


def _list_argument_types(item: Any) -> tuple[str, ...]:
    return tuple(collapse_if_tuple(argument) for argument in item["inputs"])
