"""Verdict -> standing: what an operator's audited work in a determinism class says about its honesty.

    standing = 0.05^(1 / e),    e = evidence: audits passed, each halved in weight every 30 days

That is the lower bound, at 95 %, on the share of honest answers of somebody who passed e audits and failed none
(Clopper and Pearson 1934). It is slow to gain: 1 - standing falls as 3 / e. It is quick to lose: a failed audit in any
class takes an operator's evidence in all of them, and a ballot that a quorum outvoted halves it.

The attacks this stops. *Friends*: only audits count, never votes, which colluders could give each other. *Sleeper*:
what was earned by long honest work is gone with one failed audit. *Idle identity, kept or bought*: evidence decays.
*Fresh identity*: a newcomer stands at zero, where a failed one stands too, so to register again gains nothing.
*Sybils*: each identity needs audits of its own, and k of them share the audits that one would have had; what remains of
this attack is said in rules.exposure.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gradmarket.market.errors import IllegalTransition

DOUBT: Final = 0.05
"""One minus the confidence."""
HALF_LIFE_S: Final = 30 * 86_400
BARRED_S: Final = HALF_LIFE_S
"""How long an operator gets no work after an audit of its work failed."""
OUTVOTED: Final = 0.5
"""What a ballot outside the quorum leaves of the evidence."""


@dataclass(frozen=True, slots=True)
class TrustRecord:
    """An operator's evidence in one class, as it was at the time `at` (seconds)."""

    evidence: float
    at: float


NEWCOMER: Final = TrustRecord(0.0, float("-inf"))


def now(record: TrustRecord, at: float) -> TrustRecord:
    """The record as it stands later. Raises IllegalTransition where `at` lies before it."""
    if at < record.at:
        raise IllegalTransition(f"a record of {record.at} asked for at {at}")
    if not record.evidence:
        return TrustRecord(0.0, at)
    return TrustRecord(float(record.evidence * 0.5 ** ((at - record.at) / HALF_LIFE_S)), at)


def passed(record: TrustRecord, at: float) -> TrustRecord:
    """One audit of its work agreed."""
    return TrustRecord(now(record, at).evidence + 1.0, at)


def outvoted(record: TrustRecord, at: float) -> TrustRecord:
    """A quorum rejected its ballot: a fault, or a lie that votes caught."""
    return TrustRecord(now(record, at).evidence * OUTVOTED, at)


def failed(records: Iterable[TrustRecord], at: float) -> list[TrustRecord]:
    """One audit of an operator's work failed: its records in all classes."""
    return [TrustRecord(0.0, now(record, at).at) for record in records]


def standing(record: TrustRecord, at: float) -> float:
    """0 for a newcomer, towards 1."""
    return supported(now(record, at).evidence)


def supported(audits: float) -> float:
    """The highest standing that so many passed audits support."""
    return DOUBT ** (1.0 / audits) if audits > 0 else 0.0
