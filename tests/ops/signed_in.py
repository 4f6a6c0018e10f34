"""A wallet of its own, signed in."""

import httpx
from eth_account import Account
from eth_account.messages import encode_defunct
from siwe import SiweMessage

from gradmarket.market import wire_sign_in


def signed_in(url: str, headers: dict[str, str] | None = None) -> str:
    """A session token; `headers` come with the request."""
    return sign_in(url, headers)[0]


def sign_in(url: str, headers: dict[str, str] | None = None) -> tuple[str, str]:
    """The session token, and the signature that got it."""
    account = Account.create()
    told = httpx.get(f"{url}/v1/session/nonce").json()
    text = SiweMessage(
        domain=told["domain"],
        address=account.address,
        statement=wire_sign_in.STATEMENT.format(payout=account.address),
        uri=told["uri"],
        version="1",
        chain_id=told["chain_id"],
        nonce=told["nonce"],
        issued_at="2026-01-01T00:00:00Z",
    ).prepare_message()
    signature = "0x" + account.sign_message(encode_defunct(text=text)).signature.hex()
    answer = httpx.post(f"{url}/v1/session", json={"message": text, "signature": signature}, headers=headers)
    return answer.json()["token"], signature
