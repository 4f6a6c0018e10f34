"""The letter by which a wallet signs in: tests/market/test_sign_in_message.py holds its text equal to siwe's."""

from collections.abc import Mapping
from typing import Any

from eth_account import Account
from eth_account.messages import encode_defunct
from eth_keys.datatypes import PrivateKey

from gradmarket.market.sign_in_message import SignInMessage
from gradmarket.market.wire import sign_in


def letter(challenge: Mapping[str, Any], of: str, payout: str | None = None, **changed: Any) -> SignInMessage:
    """Returns the sign-in of wallet `of`. `challenge`: from /v1/session/nonce; `changed`: fields of a cheater."""
    fields = {name: challenge[name] for name in ("domain", "uri", "chain_id", "nonce")} | {
        "address": of,
        "statement": sign_in.STATEMENT.format(payout=payout or of),
        "issued_at": "2026-01-01T00:00:00Z",
    }
    return SignInMessage(**(fields | changed))


def signed(written: SignInMessage, key: PrivateKey | bytes) -> dict[str, Any]:
    """The letter under this key's signature, as /v1/session takes it."""
    text = written.text()
    signature = Account.sign_message(encode_defunct(text=text), key).signature
    return {"message": text, "signature": "0x" + bytes(signature).hex()}
