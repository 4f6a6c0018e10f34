"""Ballots -> a quorum, another wave, or no verdict at all.

The winner has at least the plan's quorum **and** strictly more than half of all committed replicas: of three, two
that stall do not crown the third. The outcome is independent of arrival order and of ids.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradmarket.market.rules.replication import Plan
from gradmarket.market.rules.secrets import tagged
from gradmarket.market.terms import Hash, ReplicaId


@dataclass(frozen=True, slots=True)
class Quorum:
    """These replicas agree and are paid on upload; every other committed replica is rejected."""

    agreeing: frozenset[ReplicaId]


@dataclass(frozen=True, slots=True)
class Another:
    """Undecided: a further wave of `wave` workers."""

    wave: int


@dataclass(frozen=True, slots=True)
class Inconclusive:
    """No further replica could decide it."""


Judgement = Quorum | Another | Inconclusive


def judge(groups: Sequence[frozenset[ReplicaId]], committed: int, plan: Plan) -> Judgement:
    """`groups`: agreeing replicas, largest first; `committed`: all that ever committed to this attempt."""
    best = groups[0] if groups else frozenset()
    if plan.decides(committed, len(best)):
        return Quorum(best)
    more = plan.next_wave(committed, len(best))
    return Another(more) if more else Inconclusive()


def upload_order(seed: Hash, agreeing: Mapping[ReplicaId, str]) -> list[ReplicaId]:
    """Whom to ask for the payload, first to last: drawn by the wave's seed from the agreeing workers' addresses."""
    return sorted(agreeing, key=lambda replica: tagged("upload", seed, agreeing[replica].encode()))
