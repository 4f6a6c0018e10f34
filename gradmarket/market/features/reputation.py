"""Computes an operator's standing: the evidence of its honesty from audited work in a determinism class.

    standing = 0.05^(1 / e),    e = min(n, 2 * paid / price, 2 * computed / operations, 4 * own)

n counts audits passed, each halved in weight every 30 days; `paid` and `computed` sum the pay and the operations of
these answers, halved alike. `price` and `operations` are a gradient's in the job at hand: evidence counts there by its
cost, so that sixteen answers to any job cost at least half of sixteen there.

A payer is a requester, by its token at this service. Of those other than the one of the job at hand one is left out of
n, `paid` and `computed`: the one without which e is least. So the pay of any single requester proves nobody for others:
with a token and workers it would pay itself, dear answers to a job that is cheap to compute, and a ring's evidence
would cost nothing. An owner of several requesters' tokens could still do it, by answers to two of them. So `own`, the
evidence that the requester of the job at hand paid for itself, counts four times at most: for any pay of others, a
quarter of the answers that prove an operator are given to each requester's jobs anew, alone and audited. A ring with
any number of tokens has four times as much wrong at the end as one without: (1 - p) / p * 4 / (SHARE * R * PROOF), by
features.proven.seat_rules.

That is the lower bound, at 95 %, on the share of honest answers of an operator that passed e audits and failed none
(Clopper and Pearson 1934). Standing rises slowly: 1 - standing falls as 3 / e. It is lost quickly: a failed audit in
any class removes an operator's evidence in all classes. A ballot that a quorum outvoted halves it, and so does each
place that it leaves unanswered while another one of the job is not made up for (rules.strikes): a machine may fail.

The attacks this stops. *Friends*: only audits count, never votes, which colluders could give each other. *Sleeper*: one
failed audit removes the standing of long honest work. *Idle identity, kept or bought*: evidence decays. *Reserving*: an
operator that takes places and leaves them has to prove itself again. *Fresh identity*: a newcomer has standing zero,
like an operator that failed, so registering again gains nothing. *Sybils*: each identity needs audits of its own, and k
of them share the audits that one would have had; replication bounds the remainder. *Cheap proof*: answers of a tiny
job, or of one that pays dust, weigh little in others, and those of the operator's own job nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gradmarket.market.errors import IllegalTransition
from gradmarket.market.rules.replication import compute_supported_standing

HALF_LIFE_S: Final = 30 * 86_400
OUTVOTED: Final = 0.5
"""The share of the evidence that remains after a ballot outside the quorum."""
COMPARABLE: Final = 2.0
"""An answer counts whole in a job whose gradients cost at most this many times as much."""

BESIDE: Final = 3.0
"""Evidence paid by other requesters counts at most this many times as much as the job's own requester's."""


@dataclass(frozen=True, slots=True)
class GradientCost:
    """A gradient's pay, in the token's smallest units, and its operations; 0 where unknown."""

    price: float
    operations: float
    payer: str = ""
    """The requester that pays; empty where unknown."""


UNKNOWN: Final = GradientCost(0.0, 0.0)


class PaidEvidence(NamedTuple):
    """Audits passed, and the cost of these answers: pay and operations."""

    evidence: float = 0.0
    paid: float = 0.0
    computed: float = 0.0


NO_EVIDENCE: Final = PaidEvidence()
FORGOTTEN: Final = 1e-3
"""A payer with less evidence than this is forgotten, with its pay: the rest counts as the job's own."""


@dataclass(frozen=True, slots=True)
class TrustRecord:
    """An operator's evidence in one class at the time `at`, in seconds, and its cost: pay and operations."""

    evidence: float
    at: float
    paid: float = 0.0
    computed: float = 0.0
    payers: Mapping[str, PaidEvidence] = field(default_factory=dict)
    """The parts by payer; the rest dates from before payers were recorded, and counts as the job's own."""


NEWCOMER: Final = TrustRecord(0.0, float("-inf"))


def decay_record(record: TrustRecord, at: float) -> TrustRecord:
    """Returns the record decayed to a later time. Raises IllegalTransition where `at` is before the record's time."""
    if at < record.at:
        raise IllegalTransition(f"a record of {record.at} asked for at {at}")
    if not record.evidence:
        return TrustRecord(0.0, at)
    return _scale_record(record, 0.5 ** ((at - record.at) / HALF_LIFE_S), at)


def _scale_record(record: TrustRecord, left: float, at: float) -> TrustRecord:
    payers = {payer: PaidEvidence(*(each * left for each in given)) for payer, given in record.payers.items()}
    kept = {payer: given for payer, given in payers.items() if given.evidence >= FORGOTTEN}
    gone = [given for payer, given in payers.items() if payer not in kept]
    whole = (record.evidence * left, record.paid * left, record.computed * left)
    evidence, paid, computed = (max(0.0, had - sum(part)) for had, *part in zip(whole, *gone, strict=True))
    return TrustRecord(evidence, at, paid, computed, kept)


def apply_passed_audit(record: TrustRecord, at: float, cost: GradientCost = UNKNOWN) -> TrustRecord:
    """Returns the record after a passed audit of an answer of this cost."""
    had = decay_record(record, at)
    payers = dict(had.payers)
    if cost.payer:
        given = payers.get(cost.payer, NO_EVIDENCE)
        one = (1.0, cost.price, cost.operations)
        payers[cost.payer] = PaidEvidence(*(before + more for before, more in zip(given, one, strict=True)))
    return TrustRecord(had.evidence + 1.0, at, had.paid + cost.price, had.computed + cost.operations, payers)


def apply_outvoted_ballot(record: TrustRecord, at: float) -> TrustRecord:
    """Returns the record after a quorum rejected a ballot: a fault, or a lie that votes detected."""
    return _scale_record(decay_record(record, at), OUTVOTED, at)


def apply_left_place(record: TrustRecord, at: float) -> TrustRecord:
    """Returns the record after a further place in a row that was taken and left unanswered."""
    return _scale_record(decay_record(record, at), OUTVOTED, at)


def apply_lone_error(record: TrustRecord, at: float) -> TrustRecord:
    """Returns the record after an unpaid wrong answer that no other worker gave (features.proven.seat_rules)."""
    return TrustRecord(0.0, decay_record(record, at).at)


def apply_failed_audit(records: Iterable[TrustRecord], at: float) -> list[TrustRecord]:
    """Returns an operator's records in all classes after a failed audit."""
    return [TrustRecord(0.0, decay_record(record, at).at) for record in records]


def weigh_evidence(record: TrustRecord, here: GradientCost) -> float:
    """Returns the evidence that counts in a job whose gradients cost `here`, paid by its requester."""
    others = [given for payer, given in record.payers.items() if payer != here.payer] if here.payer else []
    own = max(0.0, record.evidence - sum(given.evidence for given in others))
    weighed = [(1.0 + BESIDE) * own]
    for left_out in others or [NO_EVIDENCE]:
        spent = ((record.paid - left_out.paid, here.price), (record.computed - left_out.computed, here.operations))
        weighed.append(record.evidence - left_out.evidence)
        weighed += [COMPARABLE * had / each for had, each in spent if each > 0.0]
    return min(weighed)


def compute_record_standing(record: TrustRecord, at: float, here: GradientCost = UNKNOWN) -> float:
    """Returns the standing at the time `at`, in a job of such gradients: 0 for a newcomer, approaching 1."""
    return compute_supported_standing(weigh_evidence(decay_record(record, at), here))


def after_leaving(own: float | None, operators: float | None) -> float | None:
    """Returns the time from which a wallet that leaves an operator is barred; None where neither of the two is."""
    return max((since for since in (own, operators) if since is not None), default=None)
