"""A wallet of its own, signed in."""

import httpx
from eth_account import Account

from tests.kit.letters import letter, signed


def signed_in(url: str, headers: dict[str, str] | None = None) -> str:
    """A session token; `headers` come with the request."""
    return sign_in(url, headers)[0]


def sign_in(url: str, headers: dict[str, str] | None = None) -> tuple[str, str]:
    """The session token, and the signature that got it."""
    account = Account.create()
    said = signed(letter(httpx.get(f"{url}/v1/session/nonce").json(), account.address), account.key)
    answer = httpx.post(f"{url}/v1/session", json=said, headers=headers)
    return answer.json()["token"], str(said["signature"])
