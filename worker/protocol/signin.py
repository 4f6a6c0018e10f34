"""Signs in with the wallet (EIP-4361): only at the market that is talked to, with the payout in the statement."""

from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from eth_account import Account
from eth_account.messages import encode_defunct

from gradmarket.market.sign_in_message import SignInMessage, write_time
from gradmarket.market.terms import Address
from gradmarket.market.wire.sign_in import STATEMENT, ConsentRequest, SignIn, SignInNonce
from gradmarket.network.environment import is_loopback
from worker import Untrusted
from worker.wallet import Wallet


@dataclass(frozen=True)
class Credentials:
    """Who signs in, where the pay goes, and on which chain."""

    wallet: Wallet
    payout: Address
    chain_id: int
    consent: ConsentRequest | None = None
    """The payout key's consent to be the worker's operator, if there is one."""


def sign_in(credentials: Credentials, nonce: SignInNonce, origin: str) -> SignIn:
    """Raises Untrusted if the message would sign in elsewhere: a market must not use a worker's identity there."""
    for netloc in (nonce.domain, urlsplit(nonce.uri).netloc):
        if not same_place(netloc, urlsplit(origin).netloc):
            raise Untrusted(f"{origin} asks to sign in at {netloc}; if that is the same service, use that address")
    if nonce.chain_id != credentials.chain_id:
        raise Untrusted(f"{origin} asks to sign in on chain {nonce.chain_id}, the job is on {credentials.chain_id}")
    text = build_sign_in_text(credentials, nonce)
    signed = Account.sign_message(encode_defunct(text=text), credentials.wallet.key)
    return SignIn(message=text, signature=bytes(signed.signature), consent=credentials.consent)


def build_sign_in_text(credentials: Credentials, nonce: SignInNonce) -> str:
    return SignInMessage(
        domain=nonce.domain,
        address=credentials.wallet.address,
        uri=nonce.uri,
        chain_id=nonce.chain_id,
        nonce=nonce.nonce,
        issued_at=write_time(datetime.now(UTC)),
        expiration_time=nonce.expires_at,
        statement=STATEMENT.format(payout=credentials.payout),
    ).text()


def same_place(one: str, other: str) -> bool:
    """Returns whether two `host:port` name the same service; all names of the loopback count as one."""
    return _parse_host_and_port(one) == _parse_host_and_port(other)


def _parse_host_and_port(netloc: str) -> tuple[str, int | None]:
    parts = urlsplit(f"//{netloc}")
    host = (parts.hostname or "").rstrip(".")
    return ("localhost" if is_loopback(host) else host, parts.port)
