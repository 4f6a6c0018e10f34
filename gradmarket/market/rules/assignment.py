"""Decides which workers may take a task, names the reason where one may not, and draws among those that may.

The draw is random and reproducible, never first come first served: otherwise a tenth of the market that polls ten times
as often would hold half of the quorums.

A worker is its own operator. Several workers have one operator only where the key of their payout address signed for
each of them (messages.SignedConsent); naming an address proves nothing. A record belongs to a key: a wallet's or an
operator's, and both are addresses.

- A wrong answer of a worker affects its wallet and the operator that it answered for: both are barred, and both lose
  their evidence. The same holds for its strikes. A worker gets no work while either is barred or suspended.
- A right answer counts for the operator alone. If it counted for the wallet too, a leaving wallet would keep a second
  copy of one record.
- A worker that joins an operator keeps its wallet's bar. This bars that wallet and nobody else of its operator.
- A worker that leaves takes its operator's bar of that time with it, on its wallet: leaving lifts no bar.

The attacks this stops. *A stranger's claim*: naming another's payout address affects neither its record nor its bar.
*Another payout*: the wallet stays barred. *Another key a day*: a new key has no record, as a new wallet has none.
"""

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from gradmarket.market.terms import Address, Hash, JobId, Units, domain_hash

WINDOW_PER_WORKER_S: Final = 0.005
WINDOW_MAX_S: Final = 0.050

ALL: Final = "all"
Mixable = frozenset[tuple[str, str]] | Literal["all"]
"""Pairs of determinism classes whose answers can be compared, each pair sorted by name.

A class is comparable with itself. `ALL` where answers are never compared: then a made-up class name excludes no other
class.
"""


class Reason(StrEnum):
    """Why a worker gets no replica of a task. The docstring of each member names the attack that it stops."""

    NO_HOLDER = "it has announced no rows of its own, and the job's rows stay with its holders"
    """Answers without data, under any number of identities."""
    ALREADY_TRIED = "it had a replica of this attempt, or of another task of the round where a holder has one"
    """Voting twice on one task; one holder's rows counted twice in a round."""
    NOT_SEPARATED = "another replica is of the same party"
    """Sybils on one task, as far as the job's separation detects them."""
    OTHER_CLASS = "its determinism class is not the job's, nor calibrated with those at work"
    """Honest differences in bits that look like cheating."""
    NO_RESERVATION = "no money is reserved for it yet"
    """Work that the escrow does not cover."""
    OTHER_JOB = "it works for other jobs alone (--job)"
    """Leases that would only be declined."""
    HIGHER_PRICE = "it asks for a higher price than the job pays"
    """The same."""
    AT_CAPACITY = "it holds as many leases as it may"
    """Hoarding leases to delay other workers."""
    BARRED = "an audit of its work, or of its operator's work, failed"
    """Further damage by a worker that was caught."""
    SUSPENDED = "it left too many leases or uploads of this job unanswered, and comes back by itself"
    """Committing and not revealing; withheld payloads."""
    RESTS = "it left a lease or an upload unanswered, and waits for its next one"
    """Repeating the same before it is suspended."""


SOON: Final = (None, Reason.AT_CAPACITY, Reason.NO_RESERVATION)
"""A worker with only these reasons against it may still get a replica soon."""


@dataclass(frozen=True, slots=True)
class Party:
    """The facts that separation compares.

    `network` is the address prefix, None where exempt (loopback, named addresses).
    """

    worker: Address
    operator: str
    payout: Address
    network: str | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker that polls for work.

    `uncommitted` is its reservation less its earnings and the possible earnings of its open replicas.
    """

    party: Party
    determinism_class: str
    uncommitted: Units
    capacity: int
    least_price: Units
    jobs: frozenset[JobId]
    """The jobs that it accepts; empty: any."""
    barred: bool = False
    """Whether an audit of its work, or of its operator's, failed not long ago."""
    suspended: bool = False
    """Whether its operator has too many strikes in the job (rules.strikes)."""
    rests: bool = False
    """Whether it left its last place unanswered (rules.newcomers)."""
    known: bool = False
    """Whether its own work was accepted before."""
    takes_part: bool = True
    """Whether it has rows of its own for the job, where these stay with their holders."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A wave of a task that needs workers."""

    job: JobId
    tried: frozenset[Address]
    parties: tuple[Party, ...]
    determinism_class: str
    price: Units
    separation: tuple[str, ...]
    at_work: tuple[str, ...] = ()
    """The determinism classes of the workers that already hold a place."""
    mixable: Mixable = frozenset()
    again: frozenset[Address] = frozenset()
    """The workers that tried and may try once more (rules.faults)."""
    diverged: tuple[Party, ...] = ()
    """Whose answers diverged in earlier attempts: no newcomer is asked where the known suffice, else other owners."""


def may_mix_classes(one: str, other: str, mixable: Mixable) -> bool:
    """Returns whether answers of the two classes can be compared."""
    return one == other or mixable == ALL or (min(one, other), max(one, other)) in mixable


def list_comparable_classes(determinism_class: str, mixable: Mixable) -> frozenset[str] | None:
    """Returns the classes comparable with this one, itself included; None stands for every class."""
    if mixable == ALL:
        return None
    others = (name for classes in mixable if determinism_class in classes for name in classes)
    return frozenset((determinism_class, *others))


def is_same_party(one: Party, other: Party, separation: Sequence[str]) -> bool:
    """Returns whether the two count as one party under the job's separation.

    Under `operator` a shared payout address suffices without proof: a false claim only gets the claimant fewer places.
    """
    if one.worker == other.worker or ("operator" in separation and one.payout == other.payout):
        return True
    return any(getattr(one, kind) is not None and getattr(one, kind) == getattr(other, kind) for kind in separation)


def why_not(candidate: Candidate, opening: Opening) -> Reason | None:
    """Returns the first reason why the candidate may not take the task, or None."""
    if (reason := _of_itself(candidate)) is not None:
        return reason
    classes = (opening.determinism_class, *opening.at_work)
    if not all(may_mix_classes(candidate.determinism_class, name, opening.mixable) for name in classes):
        return Reason.OTHER_CLASS
    worker = candidate.party.worker
    if worker in opening.tried and worker not in opening.again:
        return Reason.ALREADY_TRIED
    others = [party for party in opening.parties if worker not in opening.again or party.worker != worker]
    if any(is_same_party(candidate.party, party, opening.separation) for party in others):
        return Reason.NOT_SEPARATED
    if candidate.rests:
        return Reason.RESTS
    if candidate.jobs and opening.job not in candidate.jobs:
        return Reason.OTHER_JOB
    if candidate.least_price > opening.price:
        return Reason.HIGHER_PRICE
    if candidate.uncommitted < opening.price:
        return Reason.NO_RESERVATION
    if candidate.capacity < 1:
        return Reason.AT_CAPACITY
    return None


def _of_itself(candidate: Candidate) -> Reason | None:
    if not candidate.takes_part:
        return Reason.NO_HOLDER
    if candidate.suspended:
        return Reason.SUSPENDED
    return Reason.BARRED if candidate.barred else None


def window_s(live_workers: int) -> float:
    """Returns how long a draw waits for eligible workers that have not polled yet; a single worker does not wait."""
    return 0.0 if live_workers <= 1 else min(WINDOW_MAX_S, WINDOW_PER_WORKER_S * live_workers)


def draw_order(seed: Hash, workers: Iterable[Address]) -> list[Address]:
    """Returns a random order determined by the seed alone."""
    return sorted(workers, key=lambda worker: domain_hash("draw", seed, worker.encode()))


def draw_candidates(seed: Hash, candidates: Iterable[Candidate], opening: Opening, count: int) -> list[Candidate]:
    """Returns at most `count` candidates that may take the task: separate parties of comparable classes.

    Where the first in the order leaves too few comparable ones, each class is tried in the first place.
    """
    by_worker = {candidate.party.worker: candidate for candidate in candidates}
    order = [by_worker[worker] for worker in draw_order(seed, by_worker)]
    drawn = _choose_in_order(order, opening, count)
    retries = opening.mixable and opening.mixable != ALL and len(drawn) < count
    for name in sorted({candidate.determinism_class for candidate in order}) if retries else ():
        with_it_first = sorted(order, key=lambda candidate: candidate.determinism_class != name)
        drawn = max(drawn, _choose_in_order(with_it_first, opening, count), key=len)
    return drawn


def _choose_in_order(order: Iterable[Candidate], opening: Opening, count: int) -> list[Candidate]:
    chosen: list[Candidate] = []
    for candidate in order:
        suits = all(
            may_mix_classes(candidate.determinism_class, other.determinism_class, opening.mixable)
            and not is_same_party(candidate.party, other.party, opening.separation)
            for other in chosen
        )
        if len(chosen) < count and suits and why_not(candidate, opening) is None:
            chosen.append(candidate)
    return chosen


def leading_class(
    parties: Iterable[tuple[str, Party]], separation: Sequence[str], mixable: Mixable = frozenset()
) -> tuple[str, int] | None:
    """Returns the determinism class with the most separate parties, and how many; ties go to the first by name.

    A party of another class counts too where it is comparable with all that are counted.
    """
    present = sorted(parties, key=lambda pair: (pair[0], pair[1].worker))
    if not present:
        return None
    names = sorted({name for name, _ in present})[: 1 if mixable == ALL else None]
    counted = {}
    for first in names:  # separate parties of this class or of comparable ones; its own are counted first
        members: list[tuple[str, Party]] = []
        allowed = list_comparable_classes(first, mixable)
        for name, party in sorted(present, key=lambda pair: pair[0] != first) if mixable else present:
            comparable = allowed is None or name in allowed
            if not comparable or not all(may_mix_classes(name, other, mixable) for other, _ in members):
                continue
            if not any(is_same_party(party, other, separation) for _, other in members):
                members.append((name, party))
        counted[first] = len(members)
    leading = max(counted, key=lambda name: counted[name])
    return leading, counted[leading]


THREADS: Final = re.compile(r"/threads-(\d+)$")
"""The end of a determinism class (graphdoc.runner.child)."""


class Idle(StrEnum):
    """Why a worker gets no lease, where nothing stands against it at an open task (assignment.Reason)."""

    NO_JOB = "no job is running"
    HELD_UP = "no job is running; {} paused, {} without their deposit yet"
    NO_TASK = "no task is open just now"
    WAITS = "the job waits"
    """In the words of its own reason."""
    CHAIN = "the chain cannot be used"
    """In the words of the chain's trouble."""
    ASKS_NOTHING = "it asks for no work and holds none: its own log says why"
    QUEUED = "newcomers get seats in turn"
    """With its place."""
    SPENT = "no money is left to reserve for it: the deposit is spent or reserved for others (fund the job)"
    SEATED = "it has its seat in the job, and gets the next one once it has answered"
    NEXT_TURN = "its next seat comes once an honest machine could have computed its last one"
    OPERATOR_SEATED = "another worker of its operator has a seat, and an operator has one"
    OPERATOR_HOLDS = (
        "money is reserved for another worker of its operator: its own comes once that one is paid, or stops and gives "
        "it back"
    )
    NOT_IN_CREW = "other proven workers vote in this round"
    NO_TRIAL = "workers that delivered before suffice, and as many newcomers as the job tries at once have places"
    PROVEN_VOTE = "proven workers alone vote while the auditor is away"
    OTHERS_DRAWN = "others were drawn"
    TOO_FEW = "fewer free workers just now than a task begins with"


def find_thread_count(determinism_class: str) -> int | None:
    """Returns the threads of a class of processors; None of cards, and of no class."""
    found = THREADS.search(determinism_class)
    return int(found[1]) if found else None


def operator_of(worker: str, payout: str, consented: bool) -> str:
    """Returns a worker's operator. `consented`: the payout address signed that the worker is its own."""
    return payout if consented else worker


def list_answerable_keys(parties: Iterable[Party]) -> set[str]:
    """Returns the keys whose records are affected where these parties answered wrongly."""
    return {key for party in parties for key in (str(party.worker), party.operator)}


def is_barred(party: Party, keys: Set[str]) -> bool:
    """Returns whether the worker gets no work, given the keys that are barred or suspended."""
    return not keys.isdisjoint(list_answerable_keys([party]))
