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
class Record:
    """An operator's evidence in one class, as it was at the time `at` (seconds)."""

    evidence: float
    at: float


NEWCOMER: Final = Record(0.0, float("-inf"))


def now(record: Record, at: float) -> Record:
    """The record as it stands later. Raises IllegalTransition where `at` lies before it."""
    if at < record.at:
        raise IllegalTransition(f"a record of {record.at} asked for at {at}")
    if not record.evidence:
        return Record(0.0, at)
    return Record(float(record.evidence * 0.5 ** ((at - record.at) / HALF_LIFE_S)), at)


def passed(record: Record, at: float) -> Record:
    """One audit of its work agreed."""
    return Record(now(record, at).evidence + 1.0, at)


def outvoted(record: Record, at: float) -> Record:
    """A quorum rejected its ballot: a fault, or a lie that votes caught."""
    return Record(now(record, at).evidence * OUTVOTED, at)


def failed(records: Iterable[Record], at: float) -> list[Record]:
    """One audit of an operator's work failed: its records in all classes."""
    return [Record(0.0, now(record, at).at) for record in records]


def standing(record: Record, at: float) -> float:
    """0 for a newcomer, towards 1."""
    return supported(now(record, at).evidence)


def supported(audits: float) -> float:
    """The highest standing that so many passed audits support."""
    return DOUBT ** (1.0 / audits) if audits > 0 else 0.0
