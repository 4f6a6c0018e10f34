"""The candidates for a job's tasks, and the class that a job settles on. The rule is market.rules.assignment."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradmarket.market.rules import assignment
from gradmarket.market.rules import newcomers as rules
from gradmarket.market.rules.assignment import Candidate, Idle, Mixable, Opening, Party
from gradmarket.market.terms import Address, Hash, Plan, Units
from requester.store import jobs, newcomers, workers
from requester.store.review import Clearance, review_of
from requester.store.tables import Job, Replica, Task, Worker
from requester.store.work import RowReader, Work

SAMPLE = 8
"""Workers to look at per member of a quorum before looking at all of them."""


def settle_class(work: Work, job: Job, mixable: Mixable, now: float, asking: Sequence[Worker]) -> bool:
    """Returns whether the job has a determinism class; sets it to the class with the most separate workers.

    Workers that delivered before decide if they are enough, so that made-up identities of another class cannot exclude
    the real ones. The job keeps its class while those of it and of comparable classes have a quorum of separate ones.
    Else another class of theirs replaces it; if they are too few, newcomers that can be drawn count as well. Those that
    ask are looked at first: they are at hand. A review may leave classes out, and prefer some (store.review).
    """
    spec, review = jobs.load_spec(job), review_of(work)
    limits = review.limit_classes(work, job, now, asking)
    if not limits.admit(job.determinism_class):
        job.determinism_class = None
    beside = assignment.list_comparable_classes(job.determinism_class or "", mixable)
    if job.determinism_class is not None and spec.repeatable:
        at_hand = [
            (workers.get_class(worker, job), workers.build_party(worker))
            for worker in asking
            if worker.accepted_at is not None
            and workers.is_serving_job(worker, job.id)
            and workers.asks_of(worker, job) <= job.price
        ]
        parties = [(name, party) for name, party in at_hand if beside is None or name in beside]
        if _lead(parties, spec.separation, mixable)[1] >= limits.plan.quorum:
            return True
    for known in (True, False):
        some = (SAMPLE * limits.plan.quorum, workers.EVERYBODY)
        own = (workers.list_deciding_workers(work, job, now, beside, known, most=most) for most in some)
        sizes = (_find_leading_class(rows, spec.separation, mixable)[1] for rows in own)
        if job.determinism_class is not None and any(size >= limits.plan.quorum for size in sizes):
            return True
        for names in dict.fromkeys((review.list_preferred_classes(work, job, now), limits.allowed)):
            rows = workers.list_deciding_workers(work, job, now, names, known)
            present = [row for row in rows if row.determinism_class not in limits.barred]
            leading, most = _find_leading_class(present, spec.separation, mixable)
            if most >= limits.plan.first_wave:
                job.determinism_class = leading
                return True
    return job.determinism_class is not None


def _find_leading_class(present: Iterable[Any], separation: Sequence[str], mixable: Mixable) -> tuple[str, int]:
    """Returns the class with the most separate workers, and their number; `present` as `workers.present`."""
    return _lead([(row.determinism_class, workers.build_party(row)) for row in present], separation, mixable)


def _lead(parties: Sequence[tuple[str, Party]], separation: Sequence[str], mixable: Mixable) -> tuple[str, int]:
    return assignment.leading_class(parties, separation, mixable) or ("", 0)


@dataclass(frozen=True)
class Deal:
    """The workers drawn for the open places of a task. `plan` is set if it is decided with them."""

    task: Task
    places: int
    drawn: list[Candidate]
    plan: Plan | None = None
    patience_s: float | None = None
    """Seconds after which another worker takes a place over; None: by a feature's choice, or with the lease."""


@dataclass(frozen=True)
class OpenPlaces:
    """The open places of a task, and the seed of the draw; `plan` is set if it is decided before the draw.

    `fresh`: all places of its first wave are free.
    """

    task: Task
    replicas: Sequence[Replica]
    opening: Opening
    count: int
    seed: Hash
    fresh: bool = False
    plan: Plan | None = None


class CandidatePool:
    """The workers that ask for work, less the capacity that this pass has used. Features have other pools."""

    def __init__(self, reader: RowReader, job: Job, asking: Sequence[Candidate], mixable: Mixable, now: float) -> None:
        self.mixable = mixable
        self.candidates = {candidate.party.worker: candidate for candidate in asking}
        self._known: list[Party] = []
        self._trials = len(asking)
        self._begun = frozenset[str]()
        if not all(candidate.known for candidate in asking):
            self._known = newcomers.list_known_parties(reader, job, mixable, now)
            self._trials = rules.at_once(newcomers.count_tried(reader, job, now)) - newcomers.in_flight(reader, job)
        if (clearance := review_of(reader).find_clearance(reader, job)) is not None:
            self._separate_uncleared(reader, job, clearance, now)
        self._once = not jobs.load_spec(job).repeatable
        self._given: set[Address] = set()

    def _separate_uncleared(self, reader: RowReader, job: Job, clearance: Clearance, now: float) -> None:
        """Counts as known only those that the review has cleared."""
        cleared = clearance.operators
        for address, candidate in self.candidates.items():
            self.candidates[address] = replace(candidate, known=candidate.party.operator in cleared)
        known = newcomers.list_known_parties(reader, job, self.mixable, now)
        self._known = [party for party in known if party.operator in cleared]
        self._trials, self._begun = clearance.count_trials(len(self._known)), frozenset(clearance.begun)

    def choose_plan(self, task: Task) -> Plan | None:
        """Returns the checks of a task that begins, if they are decided before workers are drawn for it."""
        return None

    def list_able_candidates(self, seed: Hash, opening: Opening, places: int) -> list[Candidate]:
        """Returns the candidates that may take one of the places.

        Newcomers are limited to a few if the known workers would suffice once they are free.
        """
        able = {c.party.worker: c for c in self.candidates.values() if assignment.why_not(c, opening) is None}
        if not rules.may_fill_places(self._known, opening, places):
            apart = rules.list_other_owners([one.party for one in able.values()], opening.diverged)
            others = apart if rules.may_fill_places(apart, opening, places) else [one.party for one in able.values()]
            return [able[party.worker] for party in others]
        order = [able[worker] for worker in assignment.draw_order(seed, able)]
        newcomers = [] if opening.diverged else [candidate for candidate in order if not candidate.known]
        new = self._choose_new(seed, newcomers)
        return [candidate for candidate in order if candidate.known or candidate in new]

    def _choose_new(self, seed: Hash, drawn: Sequence[Candidate]) -> list[Candidate]:
        """Returns the newcomers to try, in turn over owners; every second time, those that began well go first."""
        turns = {party.worker: turn for turn, party in enumerate(rules.in_turn(one.party for one in drawn))}
        first = self._begun if seed[0] % 2 else frozenset[str]()
        order = sorted(drawn, key=lambda one: (one.party.operator not in first, turns[one.party.worker]))
        return order[: max(0, self._trials)]

    def spread(self, able: Iterable[Candidate]) -> list[Candidate]:
        """Returns those that this pass has given no task: a second one waits for the first, and the round for it."""
        return [candidate for candidate in able if candidate.party.worker not in self._given]

    def draw(self, places: OpenPlaces, able: Sequence[Candidate]) -> Deal | None:
        """Draws for the open places of a task; returns None where too few may take them."""
        drawn = assignment.draw_candidates(places.seed, self.spread(able), places.opening, places.count)
        if len(drawn) < places.count:
            drawn = assignment.draw_candidates(places.seed, able, places.opening, places.count)
        if (places.plan or not places.replicas) and len(drawn) < places.count:
            # A task starts with a full wave: a worker waiting in a partial one is missing for another task's next one.
            return None
        return Deal(places.task, places.count, drawn, places.plan)

    def explain_no_place(self, candidate: Candidate, places: OpenPlaces) -> Idle | None:
        """Returns why a worker that could take a place is not drawn; None where chance alone decided."""
        able = self.list_able_candidates(places.seed, places.opening, places.count)
        return None if able else Idle.NO_TRIAL

    def lease(self, candidate: Candidate, task: Task) -> None:
        """Subtracts one more task from the candidate's capacity and money."""
        self._given.add(candidate.party.worker)
        self._trials -= not candidate.known
        left = Units(candidate.uncommitted - task.offer.price)
        worker = candidate.party.worker
        room = 0 if self._once else candidate.capacity - 1  # a holder answers once in a round
        self.candidates[worker] = replace(candidate, capacity=room, uncommitted=left)


def is_asking(worker: Worker, now: float) -> bool:
    return worker.asking_until > now and worker.capacity > 0
