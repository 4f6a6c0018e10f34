"""The amounts that workers may put at risk in a job, and the judges of a contested accusation (the contract's IStake).

An accusation names the wrong answer, on the chain and in its evidence:

    event = H("accusation", offer, sealed, root, found)

`sealed` is the commitment that the worker signed, `root` the answer that opened it, `found` the root that the auditor
computed twice. All of them are published with the task. So the validators of a contested case have a signed answer, and
compute the task once to find the right root. The contract accepts each event of a worker once: a lie is slashed once,
however often it is reported.
"""

from collections.abc import Sequence
from typing import Final

from pydantic import Field, model_validator

from gradmarket.market.fields import AmountField, Part
from gradmarket.market.signing import NamedAddress
from gradmarket.market.terms import Amount, Hash, Units, domain_hash

DAY_S: Final = 86_400
LONGEST_S: Final = 2**31
"""The contract counts windows in 32 bits."""


class Stakes(Part):
    """The stake rules of a job. A worker that joins accepts these validators.

    Windows are in seconds; each is at least the contract's minimum.
    """

    validators: tuple[NamedAddress, ...] = Field(min_length=1, max_length=16)
    threshold: int = Field(default=1, ge=1)
    """The number of validators that decide a contested case."""
    bond: AmountField
    """The amount that the requester deposits with each accusation; burnt where the worker is acquitted."""
    slash_s: int = Field(default=7 * DAY_S, ge=1, lt=LONGEST_S)
    """Seconds for which a worker that has left can still be accused."""
    contest_s: int = Field(default=DAY_S, ge=1, lt=LONGEST_S)
    """Seconds for which the accused may contest; after that it is slashed."""
    decide_s: int = Field(default=DAY_S, ge=1, lt=LONGEST_S)
    """Seconds for which the validators may decide; after that the case is dismissed."""

    @model_validator(mode="after")
    def _consistent(self) -> "Stakes":
        if fault := _find_court_fault(self.validators, self.threshold, self.bond):
            raise ValueError(fault)
        return self


class Vesting(Part):
    """The last prices of each worker's pay, which a proven fault burns (the contract's IVesting).

    A worker that takes a lease accepts these validators. Windows are in seconds.
    """

    prices: int = Field(default=16, ge=1, le=10_000)
    """The number of prices of a gradient that stay locked, the last ones; of several prices the highest counts."""
    window_s: int = Field(default=DAY_S, ge=60, lt=LONGEST_S)
    """Seconds for which they stay locked after the worker's last credit: by time alone, after the job too."""
    validators: tuple[NamedAddress, ...] = Field(min_length=1, max_length=16)
    threshold: int = Field(default=1, ge=1)
    """The number of validators that burn it; undecided pay goes to the worker."""
    bond: AmountField
    """The amount that the requester deposits with each accusation; burnt unless the worker is found guilty."""
    decide_s: int = Field(default=DAY_S, ge=1, lt=LONGEST_S)
    """Seconds for which the validators may decide; after that the worker is paid."""

    @model_validator(mode="after")
    def _consistent(self) -> "Vesting":
        if fault := _find_court_fault(self.validators, self.threshold, self.bond):
            raise ValueError(fault)
        return self

    def compute_units(self, most: Amount, unit: Amount) -> Units:
        """Returns the part of a worker's pay that stays locked, in units; `most` is the highest price of a gradient."""
        return Units(self.prices * (most // unit))


def _find_court_fault(validators: Sequence[str], threshold: int, bond: int) -> str:
    if len(set(validators)) < len(validators):
        return "a validator is named twice"
    if threshold > len(validators):
        return "threshold: more than there are validators"
    return "bond: an accusation without one costs nothing" if bond < 1 else ""


def compute_accusation_event(offer: Hash, sealed: Hash, root: Hash, found: Hash) -> Hash:
    """Returns the digest of an accusation."""
    return domain_hash("accusation", offer, sealed, root, found)
