"""Stateless nonces for signing in: each contains its expiry and a proof that this service made it.

Only a nonce that a valid signature used is stored, until it expires, so that it works only once (store.identities).
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
"""Hexadecimal digits of each part: expiry, random part, proof. EIP-4361 allows letters and digits."""
_NAMED: Final = re.compile(rf"^Nonce: ([0-9a-f]{{{_TIME + _CHANCE + _PROOF}}})$", re.MULTILINE)


class Nonces:
    """Makes and checks nonces.

    The key is the signer's signature of one digest, which is never published, so all processes of one signer share it.
    """

    def __init__(self, signer: Signer) -> None:
        self._key = blake3(signer(_PURPOSE)).digest()

    def make(self, now: float) -> tuple[str, float]:
        """Returns a nonce and its expiry."""
        until = int(now) + GOOD_S
        content = f"{until:0{_TIME}x}" + secrets.token_hex(_CHANCE // 2)
        return content + self._compute_proof(content), float(until)

    def until(self, value: str, now: float) -> float | None:
        """Returns the expiry of a nonce; None if it was not made here or has expired."""
        content, proof = value[:-_PROOF], value[-_PROOF:]
        if not hmac.compare_digest(self._compute_proof(content), proof):
            return None
        until = float(int(content[:_TIME], 16))
        return until if until >= now else None

    def _compute_proof(self, nonce: str) -> str:
        return blake3(nonce.encode(), key=self._key).hexdigest(_PROOF // 2)


def named_in(message: str) -> str | None:
    """Returns the nonce in an EIP-4361 message, without parsing the rest; None if there is none."""
    match = _NAMED.search(message)
    return match[1] if match else None
