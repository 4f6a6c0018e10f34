"""Every signed struct of the market, signed by cast as well: two implementations of EIP-712 agree to the byte."""

import json
import subprocess
from dataclasses import fields
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmarket.contracts import toolchain
from gradmarket.market import messages
from gradmarket.market.signing import NAME, VERSION, Domain, Struct, digest, sign
from gradmarket.market.terms import Address, Hash

KEY = PrivateKey(bytes(range(1, 33)))
DOMAIN = Domain(31337, Address("0x5FbDB2315678afecb367f032d93F642f64180aa3"), Hash(b"\x11" * 32))
STRUCTS: tuple[type[Any], ...] = (
    messages.Offer,
    messages.Commitment,
    messages.Wave,
    messages.Verdict,
    messages.Voucher,
    messages.Release,
)
_DOMAIN_MEMBERS = [
    {"name": "name", "type": "string"},
    {"name": "version", "type": "string"},
    {"name": "chainId", "type": "uint256"},
    {"name": "verifyingContract", "type": "address"},
]


def _members(kind: type[Any]) -> list[tuple[str, str]]:
    """(type, name) of each member, as the TYPE string has them."""
    inside = kind.TYPE[kind.TYPE.index("(") + 1 : -1]
    return [(member.split(" ")[0], member.split(" ")[1]) for member in inside.split(",")]


def _value(solidity: str, data: st.DataObject) -> int | bytes | str:
    if solidity == "address":
        return "0x" + data.draw(st.binary(min_size=20, max_size=20)).hex()
    if solidity == "bytes32":
        return data.draw(st.binary(min_size=32, max_size=32))
    return data.draw(st.integers(0, 2 ** int(solidity.removeprefix("uint")) - 1))


def _plain(value: object) -> str:
    return "0x" + value.hex() if isinstance(value, bytes) else str(value)


def _typed_data(struct: Any) -> str:
    members = _members(type(struct))
    values = [DOMAIN.instance, *(getattr(struct, field.name) for field in fields(struct))]
    name = type(struct).__name__
    return json.dumps(
        {
            "types": {
                "EIP712Domain": _DOMAIN_MEMBERS,
                name: [{"name": member, "type": solidity} for solidity, member in members],
            },
            "primaryType": name,
            "domain": {
                "name": NAME,
                "version": VERSION,
                "chainId": DOMAIN.chain_id,
                "verifyingContract": DOMAIN.contract,
            },
            "message": {member: _plain(value) for (_, member), value in zip(members, values, strict=True)},
        }
    )


def _cast(struct: Struct) -> bytes:
    command = [str(toolchain.find("cast")), "wallet", "sign", "--private-key", KEY.to_hex(), "--data"]
    answer = subprocess.run([*command, _typed_data(struct)], capture_output=True, text=True, check=True)
    return bytes.fromhex(answer.stdout.strip().removeprefix("0x"))


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_cast_signs_the_same_bytes(kind: type[Any], data: st.DataObject) -> None:
    values = [_value(solidity, data) for solidity, _ in _members(kind)[1:]]
    struct = kind(*values)
    assert _cast(struct) == sign(KEY, digest(DOMAIN, struct))


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_the_instance_comes_first(kind: type[Any]) -> None:
    assert _members(kind)[0] == ("bytes32", "instance")
    assert len(_members(kind)) == len(fields(kind)) + 1
