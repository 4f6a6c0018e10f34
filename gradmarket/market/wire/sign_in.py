"""The messages between a worker and the requester at sign-in, as JSON: nonce, consent, session, facts of the chain."""

from typing import Final

from pydantic import Field

from gradmarket.market.fields import NO_NUL, AddressField, HashField, SignatureField
from gradmarket.market.signing import Domain
from gradmarket.market.wire import Wire
from gradmarket.market.wire.poll import Nonce63


class SignInNonce(Wire):
    nonce: str
    domain: str
    uri: str
    chain_id: int
    expires_at: str


SIGN_IN_LETTERS: Final = 1500
"""Most characters of a sign-in message: about 450, and twice the service's address."""


class ConsentRequest(Wire):
    """The payout key's signature of a messages.SignedConsent for the worker that signs in."""

    nonce: Nonce63
    signature: SignatureField


class WithdrawalRequest(Wire):
    """The payout key's signature of a messages.Withdrawal."""

    payout: AddressField
    nonce: Nonce63
    signature: SignatureField


class OperatorStatus(Wire):
    """The operator whose record the worker has from now on."""

    worker: AddressField
    operator: AddressField


class SignIn(Wire):
    """An EIP-4361 message and its signature; the message's statement contains the payout address."""

    message: str = Field(max_length=SIGN_IN_LETTERS, pattern=NO_NUL)
    signature: SignatureField
    consent: ConsentRequest | None = None
    """Without one the worker is its own operator, wherever it is paid."""


class Session(Wire):
    token: str = Field(pattern=r"^[!-~]{1,1024}$")
    address: AddressField
    payout: AddressField
    expires_at: str


class ChainFacts(Wire):
    """The chain and contract that hold the money. `rpc` is set for a local chain only; elsewhere a worker uses its own.

    `block` is the contract's first block: it has no events before it. `protocol` is market.release's.
    """

    chain_id: int
    genesis: HashField
    contract: AddressField
    token: AddressField
    instance: HashField
    signer: AddressField
    symbol: str
    decimals: int
    unit: str
    rpc: str | None
    block: int = Field(default=0, ge=0, lt=2**63)
    protocol: int = Field(default=0, ge=0, lt=2**31)

    @property
    def domain(self) -> Domain:
        return Domain(self.chain_id, self.contract, self.instance)


STATEMENT: Final = "Work for gradmarket. Pay out to {payout}."
