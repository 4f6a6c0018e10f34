"""Every signed struct, signed by cast as well: two implementations of EIP-712 agree to the byte."""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts import toolchain
from contracts.ledger import Ledger
from gradmarket.market import messages
from gradmarket.market.signing import NAME, VERSION, Domain, address_of, digest_struct, sign_digest
from gradmarket.market.terms import Address, Amount, Hash
from tests.kit import contract_calls

KEY = PrivateKey(bytes(range(1, 33)))
DOMAIN = Domain(31337, Address("0x5FbDB2315678afecb367f032d93F642f64180aa3"), Hash(b"\x11" * 32))
MARKET = {"name": NAME, "version": VERSION, "chainId": DOMAIN.chain_id, "verifyingContract": DOMAIN.contract}
STRUCTS: tuple[type[Any], ...] = tuple(kind for kind in vars(messages).values() if hasattr(kind, "TYPE"))
SOURCES = "\n".join(path.read_text(encoding="utf-8") for path in sorted((toolchain.HERE / "src").glob("*.sol")))
_DOMAIN_MEMBERS = [
    {"name": "name", "type": "string"},
    {"name": "version", "type": "string"},
    {"name": "chainId", "type": "uint256"},
    {"name": "verifyingContract", "type": "address"},
]


def _members(type_string: str) -> list[tuple[str, str]]:
    """(type, name) of each member."""
    inside = type_string[type_string.index("(") + 1 : -1]
    return [(member.split(" ")[0], member.split(" ")[1]) for member in inside.split(",")]


def _value(solidity: str, data: st.DataObject) -> int | bytes | str:
    if solidity == "address":
        return "0x" + data.draw(st.binary(min_size=20, max_size=20)).hex()
    if solidity == "bytes32":
        return data.draw(st.binary(min_size=32, max_size=32))
    if solidity == "bool":
        return data.draw(st.booleans())
    return data.draw(st.integers(0, 2 ** int(solidity.removeprefix("uint")) - 1))


def _plain(value: object) -> str | bool:
    if isinstance(value, bool):
        return value
    return "0x" + value.hex() if isinstance(value, bytes) else str(value)


def _cast(type_string: str, values: Sequence[object], domain: Mapping[str, object]) -> bytes:
    """Returns the digest that cast signs for the struct under the domain."""
    members, name = _members(type_string), type_string.partition("(")[0]
    typed = {
        "types": {
            "EIP712Domain": _DOMAIN_MEMBERS,
            name: [{"name": member, "type": solidity} for solidity, member in members],
        },
        "primaryType": name,
        "domain": domain,
        "message": {member: _plain(value) for (_, member), value in zip(members, values, strict=True)},
    }
    command = [str(toolchain.locate_tool("cast")), "wallet", "sign", "--private-key", KEY.to_hex(), "--data"]
    answer = subprocess.run([*command, json.dumps(typed)], capture_output=True, text=True, check=True)
    return bytes.fromhex(answer.stdout.strip().removeprefix("0x"))


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
@settings(max_examples=8)
@given(data=st.data())
def test_cast_signs_the_same_bytes(kind: type[Any], data: st.DataObject) -> None:
    values = [_value(solidity, data) for solidity, _ in _members(kind.TYPE)[1:]]
    assert _cast(kind.TYPE, [DOMAIN.instance, *values], MARKET) == sign_digest(
        KEY, digest_struct(DOMAIN, kind(*values))
    )


@settings(max_examples=8)
@given(value=st.integers(0, 2**256 - 1), deadline=st.integers(0, 2**256 - 1))
def test_cast_signs_the_same_permit(ledger: Ledger, value: int, deadline: int) -> None:
    token = {**MARKET, "name": "Gradient", "verifyingContract": ledger.deployment.token}
    permit = contract_calls.Permit(address_of(KEY), ledger.deployment.contract, Amount(value), 0, deadline)
    ours = contract_calls.sign_permit(KEY, contract_calls.token_separator(ledger), permit)
    assert _cast(contract_calls.TYPE, astuple(permit), token) == ours.r + ours.s + bytes([ours.v])


def test_the_contract_s_structs_are_ours_to_the_letter() -> None:
    members = ",".join(f"{each['type']} {each['name']}" for each in _DOMAIN_MEMBERS)
    domain = f"EIP712Domain({members})"
    theirs = re.findall(r'keccak256\(\s*"(\w+\([^"]*\))"', SOURCES)
    assert len(theirs) == SOURCES.count("_TYPEHASH =") == 6
    assert set(theirs) <= {kind.TYPE for kind in STRUCTS} | {domain}


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_the_instance_comes_first(kind: type[Any]) -> None:
    assert _members(kind.TYPE)[0] == ("bytes32", "instance")
    assert len(_members(kind.TYPE)) == len(fields(kind)) + 1
