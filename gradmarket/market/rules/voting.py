"""Turns ballots into a quorum, a further wave, a hearing, a referral to an audit, or no decision.

The winner has at least the plan's quorum **and** strictly more than half of all committed replicas: when two of three
replicas do not reveal, the third does not win. The outcome depends on neither arrival order nor ids.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradmarket.market.terms import Hash, Plan, ReplicaId, domain_hash


@dataclass(frozen=True, slots=True)
class Quorum:
    """These replicas agree and are paid on upload. Every other committed replica is rejected."""

    agreeing: frozenset[ReplicaId]


@dataclass(frozen=True, slots=True)
class Another:
    """Undecided: a further wave of `wave` workers is needed."""

    wave: int


@dataclass(frozen=True, slots=True)
class Inconclusive:
    """Undecided, and no further replica could decide it."""


@dataclass(frozen=True, slots=True)
class Referral:
    """Undecided: an audit finds the right root."""


@dataclass(frozen=True, slots=True)
class Hearing:
    """Undecided, and answers differ: a referee finds the one that stands (features.disputes.refereed)."""


Judgement = Quorum | Another | Inconclusive | Referral | Hearing


def judge_ballots(
    groups: Sequence[frozenset[ReplicaId]], committed: int, plan: Plan, refereed: bool = False
) -> Judgement:
    """Returns the judgement on a task.

    `groups` are the agreeing replicas, largest group first; `committed` counts all that ever committed to this attempt.
    `refereed`: a referee hears answers that differ where no quorum decides.
    """
    largest = groups[0] if groups else frozenset()
    if plan.decides(committed, len(largest)):
        return Referral() if plan.referred and plan.audit >= 1.0 else Quorum(largest)
    if refereed and len(groups) > 1:
        return Hearing()
    if more := plan.next_wave(committed, len(largest)):
        return Another(more)
    return Referral() if plan.referred and largest else Inconclusive()


def upload_order(seed: Hash, agreeing: Mapping[ReplicaId, str]) -> list[ReplicaId]:
    """Returns the order in which replicas are asked to upload: drawn by the wave's seed and the workers' addresses."""
    return sorted(agreeing, key=lambda replica: domain_hash("upload", seed, agreeing[replica].encode()))
