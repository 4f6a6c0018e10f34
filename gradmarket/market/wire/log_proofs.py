"""A market's publications about a job's log: signed heads, hashes of its leaves, and proofs (features.log.job_log)."""

from enum import StrEnum

from pydantic import Field

from gradmarket.market.fields import HashField, SignatureField
from gradmarket.market.messages import LogHead
from gradmarket.market.wire.evidence import PublishedView


class LeafHashes(PublishedView):
    """The hashes of some leaves in a row: each is SHA-256 of a zero byte and a record in canonical JSON."""

    first: int = Field(ge=0)
    """Number of the first of them, from 0 on."""
    hashes: tuple[HashField, ...]
    """At most 2,000, in order; none where the log ends before `first`."""


class LeafKind(StrEnum):
    OFFER = "offer"
    ATTEMPT = "attempt"
    WAVE = "wave"
    COMMITMENT = "commitment"
    REVEAL = "reveal"
    VERDICT = "verdict"
    SEAL = "seal"
    HEARING = "hearing"
    ANSWERS = "answers"
    RULING = "ruling"
    ROUND = "round"
    PAYMENT = "payment"
    RESTART = "restart"
    """The service was restored from a copy: its earlier heads may have other leaves from here on."""


class PublishedRestart(PublishedView):
    """A restore from a copy, after which the log may differ from earlier heads: a leaf of it admits that."""

    number: int = Field(ge=0)
    """That leaf's place in the log, from 0 on."""
    batch: int = Field(ge=0)
    """Number in the contract of the batch whose head lost leaves; 2147483647 where the leaf names the copy's log."""
    at: int = Field(ge=0)
    """Unix time at which it was restored, or found the loss."""


class PublishedHead(PublishedView):
    """The newest head of a job's log, which its signer stands for."""

    job: int = Field(ge=0)
    """The job's number in the contract."""
    size: int = Field(ge=0, lt=2**63)
    """Leaves."""
    root: HashField
    """RFC 9162's root over them."""
    signature: SignatureField
    """The job's signer's, of messages.LogHead."""
    restarts: tuple[PublishedRestart, ...] = ()
    """Restores of the service, after which the log may lack leaves of earlier heads."""

    def struct(self) -> LogHead:
        return LogHead(self.job, self.size, self.root)
