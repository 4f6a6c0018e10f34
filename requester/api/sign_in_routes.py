"""Workers sign in by EIP-4361 ("Sign-In with Ethereum"): the routes of the nonce and the session."""

import hmac
import re
import secrets
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from blake3 import blake3
from eth_utils.crypto import keccak
from fastapi import APIRouter, Request

from gradmarket.market import signing
from gradmarket.market.errors import Refused, SignatureRefused
from gradmarket.market.messages import SignedConsent
from gradmarket.market.sign_in_message import SignInMessage, check_wallet
from gradmarket.market.signing import Signer
from gradmarket.market.terms import Address, Hash
from gradmarket.market.wire.sign_in import STATEMENT, ChainFacts, Session, SignIn, SignInNonce
from requester.api.auth_routes import WORKER, Here
from requester.api.callers import network_of, resolve_caller
from requester.feature import features_of
from requester.store import identities
from requester.store.locks import retry_on_conflict

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
    """Returns the nonce in an EIP-4361 message, without parsing the rest; None without one."""
    match = _NAMED.search(message)
    return match[1] if match else None


router = APIRouter(prefix="/v1", tags=["session"])
chain_router = APIRouter(tags=["service"])

_PAYOUT = re.compile(re.escape(STATEMENT).replace(re.escape("{payout}"), "(0x[0-9a-fA-F]{40})") + r"\Z")
CONTRACTS: Final = "a payout address that is a contract has no key and cannot consent"
UNUSABLE: Final = "the nonce is unknown, used or too old: ask for another"


@router.get("/session/nonce", operation_id="get_nonce", summary="A nonce to sign in with, good once")
async def nonce(context: Here, request: Request) -> SignInNonce:
    value, until = _get_nonces(request).make(context.clock())
    url = context.public_url
    return SignInNonce(
        nonce=value,
        domain=urlsplit(url).netloc,
        uri=url,
        chain_id=context.domain.chain_id,
        expires_at=_format_time(until),
    )


@router.post("/session", operation_id="sign_in", status_code=201, summary="Sign in with a wallet (EIP-4361)")
@retry_on_conflict
def sign_in(context: Here, request: Request, sign_in_request: SignIn) -> Session:
    """Nothing is parsed, recovered or queried for a nonce that this service did not make or that has expired."""
    now = context.clock()
    value = named_in(sign_in_request.message)
    until = None if value is None else _get_nonces(request).until(value, now)
    if value is None or until is None:
        raise SignatureRefused(UNUSABLE)
    # its wallet signed it for this service and chain
    url, when = context.public_url, datetime.fromtimestamp(now, UTC)
    message = SignInMessage.read(sign_in_request.message)
    message.check(urlsplit(url).netloc, url, context.domain.chain_id, value, when)
    check_wallet(sign_in_request.message, sign_in_request.signature, message.address)
    payout, address = payout_of(message), message.address
    network = network_of(resolve_caller(request.scope, context.settings.trusted_proxies))
    given = sign_in_request.consent
    consent: int | None = None
    if given is not None:
        if all(feature.name != "consents" for feature in features_of(context)):
            raise Refused("this service is built without consents, which nobody could withdraw: sign in without one")
        consent = given.nonce
        try:
            signed = SignedConsent(address, payout, consent)
            signing.check_struct_signature(context.domain, signed, given.signature, payout)
        except SignatureRefused as error:
            raise SignatureRefused(f"the consent of {payout}: {error}; {CONTRACTS}") from error
    with context.begin() as work:
        work.one_at_a_time(f"nonce {value}", f"worker {address}")
        if not identities.use_nonce(work, value, until, now):
            raise SignatureRefused(UNUSABLE)
        identities.sign_in(work, address, payout, network, now, consent)
        ends = now + context.settings.session_s
        token = identities.issue_token(work, WORKER, address, ends, now)
    context.on_sign_in(address)
    return Session(token=token, address=address, payout=payout, expires_at=_format_time(ends))


def _get_nonces(request: Request) -> Nonces:
    nonces: Nonces = request.app.state.nonces
    return nonces


def payout_of(message: SignInMessage) -> Address:
    match = _PAYOUT.match(message.statement or "")
    if not match:
        raise SignatureRefused(f"the statement is not {STATEMENT!r}")
    return signing.checksum_address(match[1])


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


@chain_router.get(
    "/v1/chain", operation_id="get_chain", summary="Chain, contract, token, and the signer of offers and vouchers"
)
def chain(context: Here) -> ChainFacts:
    return context.chain_facts
