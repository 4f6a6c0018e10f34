"""Claims of a round by auditors: the records that a market publishes, and the message that an auditor sends.

A claim is an audit of a round that cannot be copied: nobody has published a digest under its key.

The roots of accepted answers are public, so a list of them proves no computing. The service hashes the merged payloads
of a round under several keys when it merges them, and forgets the payloads:

    digest[n] = BLAKE3(key[n], payload of the first task || payload of the second || …)

It publishes one key after another, and a digest only once an auditor has sent the same digest, signed. An auditor that
has not computed the round lacks both: it knows roots, which give no digest under another key, and digests under keys
that no longer count. A service may give an auditor its digests beforehand; then two auditors that trust no service
compare theirs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from blake3 import blake3
from pydantic import Field

from gradmarket.market.fields import AddressField, DigestField, HashField, SignatureField
from gradmarket.market.job_fields import JobFields
from gradmarket.market.terms import Digest, Hash, digest_text, domain_hash
from gradmarket.market.wire import Wire
from gradmarket.market.wire.evidence import PublishedView
from gradmarket.market.wire.poll import hash_of
from graphdoc.encoding import Bytes


@dataclass(frozen=True, slots=True)
class RoundClaim:
    """An auditor's statement that it computed the round's merged answers: `digest` is theirs under the claim's key."""

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


def derive_claim_key(secret: Hash, number: int, claim: int) -> Hash:
    """Returns the key of a claim of round `number`, which is secret until the service publishes it."""
    return domain_hash("claim", secret, number.to_bytes(8, "big"), claim.to_bytes(8, "big"))


def digest_answers(key: Hash, payloads: Iterable[Bytes]) -> Digest:
    """Returns the digest of a round's merged payloads, in the order of its tasks, under the key of a claim."""
    hasher = blake3(key=key)
    for payload in payloads:
        hasher.update(payload)
    return digest_text(hasher)


def find_claims_fault(spec: JobFields) -> str:
    """Returns why no auditor can claim a round of this job, the field first; empty where one can, or is not to."""
    if not spec.audit or not spec.audit.claims or not spec.private:
        return ""
    return "audit.claims: nobody else can compute the answers of a private job: leave it out"
