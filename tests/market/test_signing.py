"""Pinned EIP-712 vectors, made once and checked against `cast`; and malleable or forged signatures."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
from eth_keys.datatypes import PrivateKey
from pydantic import BaseModel, TypeAdapter

from gradmarket.market import messages, signing
from gradmarket.market.errors import SignatureRefused
from gradmarket.market.features.disputes import questions
from gradmarket.market.features.secure_sums import signed
from gradmarket.market.fields import AddressField
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Address, Hash
from requester import app as requester_app

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "signing.json").read_text())
KEY = PrivateKey(bytes.fromhex(VECTORS["key"]))
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
DOMAIN = Domain(
    VECTORS["domain"]["chain_id"],
    signing.checksum_address(VECTORS["domain"]["contract"]),
    Hash(bytes.fromhex(VECTORS["domain"]["instance"])),
)


STRUCTS = vars(messages) | vars(questions) | vars(signed)
KINDS = {kind.TYPE.partition("(")[0]: kind for kind in STRUCTS.values() if hasattr(kind, "TYPE")}
"""By the name of its EIP-712 type."""


def struct(vector: dict[str, Any]) -> Any:
    return KINDS[vector["kind"]](**{name: _value(value) for name, value in vector["fields"].items()})


def _value(value: Any) -> Any:
    return bytes.fromhex(value) if isinstance(value, str) and not value.startswith("0x") else value


@pytest.mark.parametrize("vector", VECTORS["structs"], ids=lambda vector: vector["kind"])
def test_digest_and_signature_are_pinned(vector: dict[str, Any]) -> None:
    digest = signing.digest_struct(DOMAIN, struct(vector))
    assert digest.hex() == vector["digest"]
    assert signing.sign_digest(KEY, digest).hex() == vector["signature"]
    signing.check_struct_signature(DOMAIN, struct(vector), bytes.fromhex(vector["signature"]), signing.address_of(KEY))


def test_every_struct_has_a_vector() -> None:
    assert {vector["kind"] for vector in VECTORS["structs"]} == set(KINDS)


@pytest.mark.parametrize("vector", VECTORS["structs"], ids=lambda vector: vector["kind"])
def test_a_signature_counts_for_one_domain_only(vector: dict[str, Any]) -> None:
    signature = bytes.fromhex(vector["signature"])
    elsewhere = (
        replace(DOMAIN, chain_id=1),
        replace(DOMAIN, contract=signing.checksum_address("0x" + "22" * 20)),
        replace(DOMAIN, instance=Hash(b"\2" * 32)),
    )
    for domain in elsewhere:
        with pytest.raises(SignatureRefused, match="instead of"):
            signing.check_struct_signature(domain, struct(vector), signature, signing.address_of(KEY))


def test_malleable_short_and_impossible_signatures_are_refused() -> None:
    digest = Hash(b"d" * 32)
    signature = signing.sign_digest(KEY, digest)
    s = int.from_bytes(signature[32:64], "big")
    flipped = signature[:32] + (ORDER - s).to_bytes(32, "big") + bytes([55 - signature[64]])
    for forged, why in (
        (flipped, "upper half"),
        (signature[:64], "64 bytes"),
        (signature + b"\0", "66 bytes"),
        (signature[:64] + b"\0", "v is"),
        (bytes(64) + b"\x1b", "."),
        (b"\xff" * 32 + signature[32:], "."),
    ):
        with pytest.raises(SignatureRefused, match=why):
            signing.recover_signer(digest, forged)


def test_a_word_is_32_bytes_whatever_it_holds() -> None:
    assert signing.encode_word(1) == bytes(31) + b"\1"
    assert signing.encode_word("0x" + "ab" * 20) == bytes(12) + b"\xab" * 20
    with pytest.raises(SignatureRefused, match="31 bytes"):
        signing.encode_word(b"x" * 31)


def test_a_malformed_address_is_refused() -> None:
    assert signing.checksum_address("0x" + "ab" * 20) == "0xABaBaBaBABabABabAbAbABAbABabababaBaBABaB"
    for wrong in ("0x12", "hello", "0x" + "zz" * 20):
        with pytest.raises(SignatureRefused):
            signing.checksum_address(wrong)


def list_models(base: type[BaseModel] = BaseModel) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        yield model
        yield from list_models(model)


def is_plain_address(hint: object) -> bool:
    """Whether a value may keep the letter case in which it came. A field that alone is an address has its checks in its
    metadata."""
    checked = get_origin(hint) is Annotated
    return hint is Address or (not checked and any(map(is_plain_address, get_args(hint))))


def test_one_key_has_one_spelling_in_every_message_that_comes_from_elsewhere() -> None:
    raw = "0x" + "ab" * 20
    assert TypeAdapter(AddressField).validate_python(raw) == signing.checksum_address(raw)
    assert requester_app
    plain = [
        f"{model.__name__}.{name}"
        for model in list_models()
        if model.__module__.split(".")[0] in {"gradmarket", "requester", "worker"}
        for name, field in model.model_fields.items()
        if not field.metadata and is_plain_address(field.annotation)
    ]
    assert plain == []
