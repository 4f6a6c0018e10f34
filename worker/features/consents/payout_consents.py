"""Consents of payout keys: signed here or elsewhere, stored as files, and sent to the market of their contract.

A payout address whose key consents is the operator of its workers, which then share one record
(market.rules.assignment). A worker that merely pays out to an address needs no consent.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from eth_keys.datatypes import PrivateKey
from pydantic import ConfigDict, Field, ValidationError

from gradmarket.market.errors import Refused, SignatureRefused
from gradmarket.market.fields import AddressField, DeferredModel, HashField, SignatureField, first_fault
from gradmarket.market.messages import SignedConsent, Withdrawal
from gradmarket.market.signing import NAME, VERSION, Domain, check_struct_signature, digest_struct, sign_digest
from gradmarket.market.terms import Address
from gradmarket.market.wire.poll import Nonce63
from gradmarket.market.wire.sign_in import ChainFacts, ConsentRequest, OperatorStatus, WithdrawalRequest
from worker.protocol.client import MarketClient

Message = SignedConsent | Withdrawal
_DOMAIN: Final = {"name": "string", "version": "string", "chainId": "uint256", "verifyingContract": "address"}
_LARGEST: Final = 4096
_MAKE_ONE: Final = "name a file that `gradmarket wallet consent give` printed"


class ConsentFile(DeferredModel):
    """The file that `gradmarket wallet consent give` prints."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    chain_id: int = Field(ge=1)
    contract: AddressField
    instance: HashField
    worker: AddressField
    payout: AddressField
    nonce: Nonce63
    signature: SignatureField

    @property
    def domain(self) -> Domain:
        return Domain(self.chain_id, self.contract, self.instance)


def build_consent_file(facts: ChainFacts, consent: SignedConsent, signature: bytes) -> ConsentFile:
    """Returns the consent as a file. Raises SignatureRefused if the payout's key did not sign it."""
    check_struct_signature(facts.domain, consent, signature, consent.payout)
    chain = {"chain_id": facts.chain_id, "contract": facts.contract, "instance": facts.instance}
    fields = {"worker": consent.worker, "payout": consent.payout, "nonce": consent.nonce}
    return ConsentFile(**chain, **fields, signature=signature)


def sign_consent_message(facts: ChainFacts, message: Message, key: PrivateKey) -> bytes:
    return sign_digest(key, digest_struct(facts.domain, message))


def load_consent(path: Path) -> ConsentFile:
    """Reads a consent. Raises Refused if the file is missing or not a consent."""
    try:
        with path.open("rb") as file:
            return ConsentFile.model_validate_json(file.read(_LARGEST))
    except OSError as error:
        raise Refused(f"the consent {path} cannot be read: {error.strerror}", _MAKE_ONE) from error
    except ValidationError as error:
        raise Refused(f"the consent {path} is none: {': '.join(first_fault(error))}", _MAKE_ONE) from error


def find_consent_for_market(
    paths: Iterable[Path], facts: ChainFacts, worker: Address, payout: Address
) -> ConsentRequest | None:
    """Returns the newest consent for this market's contract; None without one: the worker is its own operator.

    Raises Refused for a consent of another worker or payout, or with a wrong signature.
    """
    here = [(path, consent) for path in paths if (consent := load_consent(path)).domain == facts.domain]
    for path, consent in here:
        if (consent.worker, consent.payout) != (worker, payout):
            names = f"worker {consent.worker} and payout {consent.payout}"
            raise Refused(f"the consent {path} is for {names}: this is {worker}, paid out to {payout}")
        try:
            check_struct_signature(
                consent.domain, SignedConsent(worker, payout, consent.nonce), consent.signature, payout
            )
        except SignatureRefused as error:
            raise Refused(f"the consent {path} does not hold: {error}") from error
    newest = max((consent for _, consent in here), key=lambda consent: consent.nonce, default=None)
    return None if newest is None else ConsentRequest(nonce=newest.nonce, signature=newest.signature)


def send_withdrawal(market: MarketClient, message: Withdrawal, signature: bytes) -> OperatorStatus:
    """Sends a withdrawal and returns the worker's operator after it. Raises ServiceProblem if the market refuses it."""
    request = WithdrawalRequest(payout=message.payout, nonce=message.nonce, signature=signature)
    path = f"/v1/workers/{message.worker}/withdrawal"
    return market.signed_in(OperatorStatus, "POST", path, json=request.model_dump(mode="json"))


def build_typed_data(facts: ChainFacts, message: Message) -> dict[str, Any]:
    """Returns the typed data that an external wallet signs with eth_signTypedData_v4 (EIP-712)."""
    name, members = message.TYPE.rstrip(")").split("(")
    fields = [dict(zip(("type", "name"), member.split(" "), strict=True)) for member in members.split(",")]
    nonce, instance = message.nonce, f"0x{facts.instance.hex()}"
    return {
        "types": {"EIP712Domain": [{"name": key, "type": kind} for key, kind in _DOMAIN.items()], name: fields},
        "primaryType": name,
        "domain": {
            "name": NAME,
            "version": VERSION,
            "chainId": facts.chain_id,
            "verifyingContract": facts.contract,
        },
        "message": {"instance": instance, "worker": message.worker, "payout": message.payout, "nonce": nonce},
    }
