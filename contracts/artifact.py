"""Loads the committed compiled contracts, and computes the hash that identifies deployed code."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from eth_utils.crypto import keccak

from gradmarket.market.errors import NotFound
from gradmarket.market.terms import Hash

FOLDER: Final = Path(__file__).resolve().parent / "artifacts"


@dataclass(frozen=True, slots=True)
class ImmutableReference:
    """A range of bytes of the deployed code that the constructor fills in."""

    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled contract. `abi` is Solidity's JSON ABI; `sources` maps each compiled file to its sha256, in hex."""

    name: str
    abi: tuple[Mapping[str, Any], ...]
    bytecode: bytes
    deployed_bytecode: bytes
    immutable_references: tuple[ImmutableReference, ...]
    sources: Mapping[str, str]
    sources_sha256: str
    compiler: Mapping[str, Any]

    @property
    def code_hash(self) -> Hash:
        """The `masked_code_hash` of any deployment of this contract."""
        return masked_code_hash(self.deployed_bytecode, self.immutable_references)

    def matches(self, code: bytes) -> bool:
        """Returns whether `code`, read from a chain, is this contract's, for any arguments of the constructor."""
        same_length = len(code) == len(self.deployed_bytecode)
        return same_length and masked_code_hash(code, self.immutable_references) == self.code_hash


def masked_code_hash(code: bytes, references: Sequence[ImmutableReference]) -> Hash:
    """Returns the keccak256 of deployed code with every immutable zeroed."""
    masked = bytearray(code)
    for reference in references:
        masked[reference.start : reference.start + reference.length] = bytes(reference.length)
    return Hash(keccak(bytes(masked)))


@cache
def load_artifact(name: str) -> Artifact:
    """Returns the committed artifact of `GradMarket` or `GradToken`; raises NotFound for any other name."""
    path = FOLDER / f"{name}.json"
    if not path.is_file():
        raise NotFound(f"artifact {name}")
    raw = json.loads(path.read_text(encoding="utf-8"))
    return Artifact(
        name=raw["name"],
        abi=tuple(raw["abi"]),
        bytecode=_parse_hex_code(raw["bytecode"]),
        deployed_bytecode=_parse_hex_code(raw["deployedBytecode"]),
        immutable_references=tuple(ImmutableReference(**reference) for reference in raw["immutableReferences"]),
        sources=raw["sources"],
        sources_sha256=raw["sources_sha256"],
        compiler=raw["compiler"],
    )


def _parse_hex_code(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))
