"""Consents of payout keys: signed here or elsewhere, kept as files, and brought to the market that each is for.

A payout address whose key says so is the operator of its workers, which then share one record
(market.rules.operators). Who only pays out somewhere needs none of this.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from eth_keys.datatypes import PrivateKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gradmarket.market.errors import Refused, SignatureRefused
from gradmarket.market.fields import AddressField, HashField, SignatureField, first_fault
from gradmarket.market.messages import SignedConsent, Withdrawal
from gradmarket.market.signing import NAME, VERSION, Domain, check, digest, sign
from gradmarket.market.terms import Address
from gradmarket.market.wire import ChainFacts, ConsentRequest, Nonce63, OperatorStatus, WithdrawalRequest
from gradmarket.worker.client import MarketClient

Message = SignedConsent | Withdrawal
_DOMAIN: Final = {"name": "string", "version": "string", "chainId": "uint256", "verifyingContract": "address"}
_LARGEST: Final = 4096


class ConsentFile(BaseModel):
    """As `gradmarket wallet consent give` writes it."""

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


def domain_of(facts: ChainFacts) -> Domain:
    return Domain(facts.chain_id, facts.contract, facts.instance)


def made(facts: ChainFacts, consent: SignedConsent, signature: bytes) -> ConsentFile:
    """Raises SignatureRefused where the payout's key did not sign it."""
    check(domain_of(facts), consent, signature, consent.payout)
    place = {"chain_id": facts.chain_id, "contract": facts.contract, "instance": facts.instance}
    said = {"worker": consent.worker, "payout": consent.payout, "nonce": consent.nonce}
    return ConsentFile(**place, **said, signature=signature)


def signed(facts: ChainFacts, message: Message, key: PrivateKey) -> bytes:
    return sign(key, digest(domain_of(facts), message))


def read(path: Path) -> ConsentFile:
    """Raises Refused where the file is not there, or none."""
    try:
        with path.open("rb") as file:
            return ConsentFile.model_validate_json(file.read(_LARGEST))
    except OSError as error:
        raise Refused(f"the consent {path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise Refused(f"the consent {path} is none: {': '.join(first_fault(error))}") from error


def fitting(paths: Iterable[Path], facts: ChainFacts, worker: Address, payout: Address) -> ConsentRequest | None:
    """The newest for this market's contract. Raises Refused for one that is another worker's or payout's, or unsigned.

    None where no file is for this contract: there the worker is its own operator.
    """
    here = [(path, found) for path in paths if (found := read(path)).domain == domain_of(facts)]
    for path, found in here:
        if (found.worker, found.payout) != (worker, payout):
            names = f"worker {found.worker} and payout {found.payout}"
            raise Refused(f"the consent {path} is for {names}: this is {worker}, paid out to {payout}")
        try:
            check(found.domain, SignedConsent(worker, payout, found.nonce), found.signature, payout)
        except SignatureRefused as error:
            raise Refused(f"the consent {path} does not hold: {error}") from error
    newest = max((found for _, found in here), key=lambda found: found.nonce, default=None)
    return None if newest is None else ConsentRequest(nonce=newest.nonce, signature=newest.signature)


def withdraw(market: MarketClient, message: Withdrawal, signature: bytes) -> OperatorStatus:
    """The worker's operator after it. Raises Problem where the market does not take it."""
    said = WithdrawalRequest(payout=message.payout, nonce=message.nonce, signature=signature)
    path = f"/v1/workers/{message.worker}/withdrawal"
    return market.signed_in(OperatorStatus, "POST", path, json=said.model_dump(mode="json"))


def typed(facts: ChainFacts, message: Message) -> dict[str, Any]:
    """What a wallet elsewhere signs with eth_signTypedData_v4 (EIP-712)."""
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
