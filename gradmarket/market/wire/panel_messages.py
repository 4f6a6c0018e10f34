"""Panels of auditors: the seal and the opening of an auditor's answer, and the publication of both."""

from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from gradmarket.market.fields import AddressField, DigestField, HashField, SignatureField
from gradmarket.market.printable import Printable
from gradmarket.market.terms import Address, Hash
from gradmarket.market.wire.base import Wire


@dataclass(frozen=True, slots=True)
class AuditSeal:
    """An auditor's sealed answer to the offer, in run `run` of its audit."""

    TYPE: ClassVar[str] = "AuditSeal(bytes32 instance,bytes32 offer,address auditor,uint64 run,bytes32 sealed)"
    offer: Hash
    auditor: Address
    run: int
    sealed: Hash


class PanelSeal(Wire):
    """What an auditor sends before anybody opens an answer; `signature` is the signer's, of an AuditSeal."""

    auditor: Printable = Field(min_length=1, max_length=100)
    run: int = Field(ge=0, lt=2**31)
    signer: AddressField
    sealed: HashField
    signature: SignatureField


class PanelOpening(Wire):
    """What opens the seal, once all of the panel have sealed their answers."""

    auditor: Printable = Field(min_length=1, max_length=100)
    run: int = Field(ge=0, lt=2**31)
    root: DigestField
    salt: HashField
    seconds: float = Field(default=0.0, ge=0, le=1e6)
