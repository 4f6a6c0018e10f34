"""Nonces to sign in with that nobody has to keep: each carries its end and proves that this service made it.

Only one that a valid signature used is written down, until its end, so that it is good once (store.identities).
"""

import hmac
import re
import secrets
from typing import Final

from blake3 import blake3
from eth_utils.crypto import keccak

from gradmarket.market.signing import Signer
from gradmarket.market.terms import Hash

GOOD_S: Final = 300
_PURPOSE: Final = Hash(keccak(text="gradmarket: the key of the nonces to sign in with"))
_TIME, _CHANCE, _PROOF = 10, 16, 32
"""Hexadecimal digits of each part; EIP-4361 allows letters and digits."""
_NAMED: Final = re.compile(rf"^Nonce: ([0-9a-f]{{{_TIME + _CHANCE + _PROOF}}})$", re.MULTILINE)


class Nonces:
    """`signer`: its signature of one digest, which it gives nobody, is the key: processes of one signer share it."""

    def __init__(self, signer: Signer) -> None:
        self._key = blake3(signer(_PURPOSE)).digest()

    def make(self, now: float) -> tuple[str, float]:
        """A nonce and its end."""
        until = int(now) + GOOD_S
        told = f"{until:0{_TIME}x}" + secrets.token_hex(_CHANCE // 2)
        return told + self._proof(told), float(until)

    def until(self, value: str, now: float) -> float | None:
        """The end of a nonce that was made here and is young enough."""
        told, proof = value[:-_PROOF], value[-_PROOF:]
        if not hmac.compare_digest(self._proof(told), proof):
            return None
        until = float(int(told[:_TIME], 16))
        return until if until >= now else None

    def _proof(self, told: str) -> str:
        return blake3(told.encode(), key=self._key).hexdigest(_PROOF // 2)


def named_in(message: str) -> str | None:
    """The nonce that an EIP-4361 message names, without reading the rest of it."""
    found = _NAMED.search(message)
    return found[1] if found else None
