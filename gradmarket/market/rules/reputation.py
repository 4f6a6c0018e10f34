"""Computes an operator's standing: what its audited work in a determinism class says about its honesty.

    standing = 0.05^(1 / e),    e = evidence: audits passed, each halved in weight every 30 days

That is the lower bound, at 95 %, on the share of honest answers of an operator that passed e audits and failed none
(Clopper and Pearson 1934). Standing rises slowly: 1 - standing falls as 3 / e. It is lost quickly: a failed audit in
any class removes an operator's evidence in all classes, and a ballot that a quorum outvoted halves it.

The attacks this stops. *Friends*: only audits count, never votes, which colluders could give each other. *Sleeper*: one
failed audit removes what long honest work earned. *Idle identity, kept or bought*: evidence decays. *Fresh identity*: a
newcomer has standing zero, like an operator that failed, so registering again gains nothing. *Sybils*: each identity
needs audits of its own, and k of them share the audits that one would have had; rules.exposure says what remains of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gradmarket.market.errors import IllegalTransition
from gradmarket.market.terms import DOUBT

HALF_LIFE_S: Final = 30 * 86_400
BARRED_S: Final = HALF_LIFE_S
"""How long an operator gets no work after an audit of its work failed."""
OUTVOTED: Final = 0.5
"""The share of the evidence that remains after a ballot outside the quorum."""


@dataclass(frozen=True, slots=True)
class TrustRecord:
    """An operator's evidence in one class at the time `at`, in seconds."""

    evidence: float
    at: float


NEWCOMER: Final = TrustRecord(0.0, float("-inf"))


def decay_record(record: TrustRecord, at: float) -> TrustRecord:
    """Returns the record decayed to a later time. Raises IllegalTransition where `at` is before the record's time."""
    if at < record.at:
        raise IllegalTransition(f"a record of {record.at} asked for at {at}")
    if not record.evidence:
        return TrustRecord(0.0, at)
    return TrustRecord(float(record.evidence * 0.5 ** ((at - record.at) / HALF_LIFE_S)), at)


def apply_passed_audit(record: TrustRecord, at: float) -> TrustRecord:
    """Returns the record after a passed audit."""
    return TrustRecord(decay_record(record, at).evidence + 1.0, at)


def apply_outvoted_ballot(record: TrustRecord, at: float) -> TrustRecord:
    """Returns the record after a quorum rejected a ballot: a fault, or a lie that votes detected."""
    return TrustRecord(decay_record(record, at).evidence * OUTVOTED, at)


def apply_lone_error(record: TrustRecord, at: float) -> TrustRecord:
    """Returns the record after an unpaid wrong answer that no other worker gave (rules.identities)."""
    return TrustRecord(0.0, decay_record(record, at).at)


def apply_failed_audit(records: Iterable[TrustRecord], at: float) -> list[TrustRecord]:
    """Returns an operator's records in all classes after a failed audit."""
    return [TrustRecord(0.0, decay_record(record, at).at) for record in records]


def compute_record_standing(record: TrustRecord, at: float) -> float:
    """Returns the standing at the time `at`: 0 for a newcomer, approaching 1."""
    return compute_supported_standing(decay_record(record, at).evidence)


def compute_supported_standing(audits: float) -> float:
    """Returns the highest standing that `audits` passed audits support."""
    return DOUBT ** (1.0 / audits) if audits > 0 else 0.0
