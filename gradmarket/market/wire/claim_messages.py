"""Claims of a round by auditors: what a market publishes of them, and what an auditor sends (rules.round_claims)."""

from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from gradmarket.market.fields import AddressField, DigestField, HashField, SignatureField
from gradmarket.market.terms import Digest, Hash
from gradmarket.market.wire.base import Wire
from gradmarket.market.wire.evidence import PublishedView
from gradmarket.market.wire.poll import hash_of


@dataclass(frozen=True, slots=True)
class RoundClaim:
    """An auditor's word that it computed the round's merged answers: `digest` is theirs under the claim's key."""

    TYPE: ClassVar[str] = "RoundClaim(bytes32 instance,uint256 job,uint32 round,uint32 number,bytes32 digest)"
    job: int
    round: int
    number: int
    digest: Hash


class ClaimAnswer(Wire):
    """`signature` is the auditor's, of a RoundClaim."""

    number: int = Field(ge=0, lt=2**31)
    digest: DigestField
    signature: SignatureField


class PublishedClaim(PublishedView):
    """A claim whose digest was the withheld one."""

    number: int = Field(ge=0)
    """Number of the claim of its round, from 0 on."""
    key: HashField
    """Key of its digest (BLAKE3)."""
    auditor: AddressField
    """Address whose signature it has."""
    digest: DigestField
    """Digest under the key of the round's merged payloads, in the order of their tasks."""
    signature: SignatureField
    """The auditor's, of a RoundClaim."""

    def struct(self, chain_job: int, round_number: int) -> RoundClaim:
        return build_claim(chain_job, round_number, self.number, self.digest)


class RoundClaims(PublishedView):
    """The claims of a round; `open`: the number of the next, under `key`, whose digest is withheld; null for none."""

    items: tuple[PublishedClaim, ...]
    open: int | None
    key: HashField | None


def build_claim(chain_job: int, round_number: int, number: int, digest: Digest) -> RoundClaim:
    return RoundClaim(chain_job, round_number, number, hash_of(digest))
