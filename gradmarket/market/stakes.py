"""What workers may put at risk in a job, and who decides a contested accusation (the contract's IStake).

An accusation names the wrong answer, on the chain and in its evidence:

    event = H("accusation", offer, sealed, root, found)

`sealed` is the commitment that the worker signed, `root` the answer that opened it, `found` what the auditor computed
twice. All of them are published with the task. So whoever decides a contested case has a signed answer, and computes
the task once to see which root is right. The contract accepts each event of a worker once: a lie is slashed once,
however often it is reported.
"""

from typing import Final

from pydantic import Field, model_validator

from gradmarket.market.digests import domain_hash
from gradmarket.market.fields import AmountField, Part
from gradmarket.market.signing import NamedAddress
from gradmarket.market.terms import Hash

DAY_S: Final = 86_400
LONGEST_S: Final = 2**31
"""The contract counts windows in 32 bits."""


class Stakes(Part):
    """The stake rules of a job. A worker that joins accepts these validators.

    Windows are in seconds; each is at least the contract's minimum.
    """

    validators: tuple[NamedAddress, ...] = Field(min_length=1, max_length=16)
    threshold: int = Field(default=1, ge=1)
    """How many of the validators decide a contested case."""
    bond: AmountField
    """What the requester deposits with each accusation; burnt where the worker is acquitted."""
    slash_s: int = Field(default=7 * DAY_S, ge=1, lt=LONGEST_S)
    """How long a worker that has left can still be accused, in seconds."""
    contest_s: int = Field(default=DAY_S, ge=1, lt=LONGEST_S)
    """How long the accused may contest, in seconds; after that it is slashed."""
    decide_s: int = Field(default=DAY_S, ge=1, lt=LONGEST_S)
    """How long the validators may decide, in seconds; after that the case is dismissed."""

    @model_validator(mode="after")
    def _consistent(self) -> "Stakes":
        if len(set(self.validators)) < len(self.validators):
            raise ValueError("a validator is named twice")
        if self.threshold > len(self.validators):
            raise ValueError("threshold: more than there are validators")
        if self.bond < 1:
            raise ValueError("bond: an accusation without one costs nothing")
        return self


def compute_accusation_event(offer: Hash, sealed: Hash, root: Hash, found: Hash) -> Hash:
    """Returns the digest of an accusation."""
    return domain_hash("accusation", offer, sealed, root, found)
