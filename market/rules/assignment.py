"""Who may take which task, and why not; and the draw among those who may.

The draw is random and replayable, never first come first served: a tenth of the market polling ten times as often
would otherwise hold half of the quorums.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gradmarket.market.rules.secrets import tagged
from gradmarket.market.terms import Address, Hash, JobId, Units

WINDOW_PER_WORKER_S: Final = 0.005
WINDOW_MAX_S: Final = 0.050


class Reason(StrEnum):
    """Why a worker gets no replica of a task, with the attack that the guard stops."""

    ALREADY_TRIED = "it had a replica of this attempt"
    """Voting twice on one task."""
    NOT_SEPARATED = "another replica is of the same party"
    """Sybils on one task, as far as the job's separation tells them apart."""
    OTHER_CLASS = "its determinism class is not the job's"
    """Honest disagreement about bits that passes for cheating."""
    NO_RESERVATION = "no money is reserved for it"
    """Work that the escrow does not cover."""
    OTHER_TERMS = "it asks for another job or a higher price"
    """Leases that would only be declined."""
    AT_CAPACITY = "it holds as many leases as it may"
    """Hoarding leases to stall siblings."""
    BARRED = "an audit of its operator's work failed"
    """Spoiling more, once caught."""
    SUSPENDED = "it left too many leases or uploads unanswered"
    """Commit and stall; withheld payloads."""


@dataclass(frozen=True, slots=True)
class Party:
    """What separation tells apart. `network` is the address prefix, none where exempt (loopback, named addresses)."""

    worker: Address
    operator: str
    payout: Address
    network: str | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker that asks; `uncommitted` is its reservation less what it has earned or may earn in flight."""

    party: Party
    determinism_class: str
    uncommitted: Units
    capacity: int
    strikes: int
    least_price: Units
    jobs: frozenset[JobId]
    """None named: any."""
    barred: bool = False
    """An audit of its operator's work failed not long ago (rules.reputation)."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A task's wave that wants workers."""

    job: JobId
    tried: frozenset[Address]
    parties: tuple[Party, ...]
    determinism_class: str
    price: Units
    separation: tuple[str, ...]
    max_strikes: int


def together(one: Party, other: Party, separation: Sequence[str]) -> bool:
    """Whether the two count as one party under the job's separation."""
    if one.worker == other.worker:
        return True
    return any(getattr(one, kind) is not None and getattr(one, kind) == getattr(other, kind) for kind in separation)


def why_not(candidate: Candidate, opening: Opening) -> Reason | None:
    """The first reason against, or None."""
    if candidate.strikes >= opening.max_strikes:
        return Reason.SUSPENDED
    if candidate.barred:
        return Reason.BARRED
    if candidate.determinism_class != opening.determinism_class:
        return Reason.OTHER_CLASS
    if candidate.party.worker in opening.tried:
        return Reason.ALREADY_TRIED
    if any(together(candidate.party, party, opening.separation) for party in opening.parties):
        return Reason.NOT_SEPARATED
    if candidate.least_price > opening.price or (candidate.jobs and opening.job not in candidate.jobs):
        return Reason.OTHER_TERMS
    if candidate.uncommitted < opening.price:
        return Reason.NO_RESERVATION
    if candidate.capacity < 1:
        return Reason.AT_CAPACITY
    return None


def window_s(live_workers: int) -> float:
    """How long a draw waits for the eligible workers that have not asked yet; one alone does not wait."""
    return 0.0 if live_workers <= 1 else min(WINDOW_MAX_S, WINDOW_PER_WORKER_S * live_workers)


def draw_order(seed: Hash, workers: Iterable[Address]) -> list[Address]:
    """A random order that the seed alone decides."""
    return sorted(workers, key=lambda worker: tagged("draw", seed, worker.encode()))


def draw(seed: Hash, candidates: Iterable[Candidate], opening: Opening, count: int) -> list[Candidate]:
    """At most `count` candidates that may take it, no two of one party."""
    by_worker = {candidate.party.worker: candidate for candidate in candidates}
    chosen: list[Candidate] = []
    for worker in draw_order(seed, by_worker):
        candidate = by_worker[worker]
        clash = any(together(candidate.party, other.party, opening.separation) for other in chosen)
        if len(chosen) < count and not clash and why_not(candidate, opening) is None:
            chosen.append(candidate)
    return chosen


def leading_class(parties: Iterable[tuple[str, Party]], separation: Sequence[str]) -> tuple[str, int] | None:
    """The determinism class with the most separate parties, and how many; ties go to the first by name."""
    by_class: dict[str, list[Party]] = {}
    for name, party in sorted(parties, key=lambda pair: (pair[0], pair[1].worker)):
        members = by_class.setdefault(name, [])
        if not any(together(party, other, separation) for other in members):
            members.append(party)
    if not by_class:
        return None
    name = max(by_class, key=lambda name: len(by_class[name]))
    return name, len(by_class[name])
