"""Gives seats to newcomers and proven workers, where a job separates them (market.features.proven.seat_rules)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

from gradmarket.market.features.late import expected_s
from gradmarket.market.features.proven import seat_rules
from gradmarket.market.features.proven.seat_rules import LeftPlace, Newcomer
from gradmarket.market.rules import assignment
from gradmarket.market.rules.assignment import Candidate, Idle, Mixable, Opening, Party
from gradmarket.market.rules.replication import BEST, STRANGER
from gradmarket.market.rules.replication.proven import LAST, is_proven
from gradmarket.market.terms import Address, Hash, Plan
from requester.features.proven import joining, seats
from requester.moves.candidates import CandidatePool, Deal, OpenPlaces
from requester.store import jobs, workers
from requester.store.review import review_of
from requester.store.tables import Job, Replica, Task
from requester.store.work import RowReader

Seating = tuple[list[Candidate], Plan | None]
"""The candidates for a task's open seats, and the plan of a task that begins with them."""
NOBODY: Final[Seating] = ([], None)


class SeatPool(CandidatePool):
    """Candidates of a job that separates newcomers from proven workers; each can take one seat."""

    def __init__(self, reader: RowReader, job: Job, asking: Sequence[Candidate], mixable: Mixable, now: float) -> None:
        waiting = seats.list_waiting_workers(reader, job, asking, now)
        free = [replace(one, capacity=min(1, one.capacity)) for one in asking if one.party.worker not in waiting]
        super().__init__(reader, job, free, mixable, now)
        self._reader, self._job, self._spec = reader, job, jobs.load_spec(job)
        self._standings = seats.load_standings(reader, job, free, now)
        self._proof, self._now = self._spec.proof or 0, now
        self._present = seats.list_proven_parties(reader, job, mixable, self._proof, now)
        self._seated = seats.list_seated_operators(reader, job)
        self._alone: dict[int, int] = {}
        self._queue: list[Newcomer] | None = None
        self._tried = set[str | None]()
        self.patience_s: dict[str, float] = {}
        """Seconds after which a proven worker takes over a task's seat; the lease's length for tasks not in it."""

    def list_able_candidates(self, _seed: Hash, opening: Opening, _places: int) -> list[Candidate]:
        """Returns the candidates that may take the task; newcomers are bounded by their share of tasks."""
        return [one for one in self.candidates.values() if assignment.why_not(one, opening) is None]

    def draw(self, places: OpenPlaces, able: Sequence[Candidate]) -> Deal | None:
        """Draws for the task's open places; returns None where too few candidates are present."""
        task = places.task
        seated, plan = self._choose_seated(places, able)
        taken = len(seated) if plan else places.count
        return Deal(task, taken, seated, plan, self.patience_s.get(task.id)) if seated else None

    def _choose_seated(self, places: OpenPlaces, able: Sequence[Candidate]) -> Seating:
        task, replicas, opening, seed = places.task, places.replicas, places.opening, places.seed
        if task.plan in self._spec.unaudited_plans and any(row.state in seats.SEATED for row in replicas):
            return assignment.draw_candidates(seed, able, opening, places.count), None
        fresh = task.wave == 0 and not any(row.state in seats.SEATED for row in replicas)
        by_class, votes = self._count_proven(), self._spec.replication.replicas
        proven = max(by_class.values(), default=0)
        # where the proven ones of a class stay too few to vote, each goes on alone
        late = self._now >= task.created_at + workers.HERE_S
        few = {row.determinism_class for row in able if late and by_class.get(row.determinism_class, 0) < votes}
        alone = [
            row.party.worker for row in able if row.determinism_class in few or not self._is_proven(row.party.worker)
        ]
        if fresh and alone and (newcomer := self._choose_newcomer(task, seed, alone, proven)):
            chosen = self.candidates[newcomer.party.worker]
            self._alone[task.round] = self._count_alone(task.round) + 1
            self._tried.add(newcomer.party.network)
            if proven >= votes and newcomer.is_unknown and self._left:
                self.patience_s[task.id] = self._expect_seconds(chosen.determinism_class)
            return [chosen], self._spec.plan(STRANGER)
        plan = self._plan_vote(task, proven)
        count = plan.first_wave if fresh else places.count
        crew = self._choose_crew(task, plan if fresh else task.plan, replicas, opening)
        free = [one for one in able if one.party.worker in crew and one.party.operator not in self._seated]
        by_worker = {one.party.worker: one for one in free}
        order = assignment.draw_order(seed, by_worker)
        for name in dict.fromkeys(by_worker[worker].determinism_class for worker in order):
            of_class = [one for one in free if one.determinism_class == name]
            alike = replace(opening, determinism_class=name, mixable=frozenset())
            drawn = assignment.draw_candidates(seed, of_class, alike, count)
            if len(drawn) == count or (drawn and not fresh):
                return drawn, plan if fresh else None
        return NOBODY

    def lease(self, candidate: Candidate, task: Task) -> None:
        super().lease(candidate, task)
        self._seated.add(candidate.party.operator)

    def explain_no_place(self, candidate: Candidate, places: OpenPlaces) -> Idle | None:
        party = candidate.party
        if party.worker not in self.candidates:
            return Idle.SEATED if party.operator in self._seated else Idle.NEXT_TURN
        if not self._is_proven(party.worker):
            return None
        if party.operator in self._seated:
            return Idle.OPERATOR_SEATED
        crew = self._choose_crew(places.task, places.task.plan, places.replicas, places.opening)
        return None if party.worker in crew else Idle.NOT_IN_CREW

    @cached_property
    def _left(self) -> list[LeftPlace]:
        return seats.list_watched_places(self._reader, self._job, self._now)

    def _choose_newcomer(self, task: Task, seed: Hash, alone: Sequence[Address], proven: int) -> Newcomer | None:
        """Returns the one of `alone` that takes the task: by turn within the newcomers' share, else an untried one."""
        sizes, votes = self._spec.sizes, self._spec.replication.replicas
        tasks, left, further = sizes.of(task.round), 1, 0
        if proven >= votes:
            share = seat_rules.count_newcomers_tasks(sizes.before(task.round), tasks, proven, votes)
            left = share - self._count_alone(task.round)
            further = seat_rules.count_untried_tasks(seat_rules.compute_share(proven, votes), tasks)
        if left <= 0 and (left + further <= 0 or self._is_auditor_outgrown):
            return None
        queue = self._order(assignment.draw_order(seed, alone))
        if proven >= votes:
            queue = seat_rules.list_unpaused(queue, self._left)
        if left <= 0:
            left_untried = (one for one in queue if one.party.network not in self._tried)
            return next(iter(seat_rules.draw_untried(Hash(self._job.secret), task.round, left_untried)), None)
        by_worker = {one.party.worker: one for one in queue}
        return by_worker[seat_rules.choose_newcomer(seed, queue)] if queue else None

    def _expect_seconds(self, determinism_class: str) -> float:
        of_class = seats.list_paces(self._reader, self._job, determinism_class)
        return expected_s((), of_class, self._spec.deadlines.lease_s)

    def _is_proven(self, worker: Address) -> bool:
        return is_proven(self._standings.get(worker, 0.0), self._proof)

    def _order(self, alone: Sequence[Address]) -> list[Newcomer]:
        """Returns those that may go on alone in the order of the job's queue; proven ones come last."""
        if self._queue is None:
            self._queue = joining.list_queue(self._reader, self._job, self.mixable, self._now)
        queued = [one for one in self._queue if one.party.worker in alone]
        left = set(alone) - {one.party.worker for one in queued}
        rest = [Newcomer(self.candidates[one].party, self._standings.get(one, 0.0)) for one in alone if one in left]
        return [*queued, *rest]

    def _plan_vote(self, task: Task, proven: int) -> Plan:
        """Plans a vote of proven workers; in rounds whose tasks are all audited, one of them answers alone.

        Where audits are late, a hidden seat replaces them, if enough workers are present and the deposit pays for it.
        """
        plan, alone = self._spec.plan(BEST), self._is_audited(task.round)
        if not self._is_auditor_outgrown:
            return self._spec.plan(STRANGER) if alone else plan
        plain, hidden = self._spec.relieved_plans
        if not alone and not seat_rules.is_seat_hidden(Hash(task.secret), plan.audit):
            return plain
        may = proven >= hidden.first_wave and seats.pays_hidden_seat(self._reader, self._job, task.round)
        return hidden if may else replace(plan, audit=1.0)

    def _is_audited(self, number: int) -> bool:
        return number >= self._spec.rounds - LAST or number <= self._last_alert_round

    @cached_property
    def _last_alert_round(self) -> int:
        return seats.find_last_alert_round(self._reader, self._job)

    @cached_property
    def _is_auditor_outgrown(self) -> bool:
        newest = jobs.latest_round(self._reader, self._job.id)
        number = newest.number if newest else 0
        waited_s = review_of(self._reader).compute_longest_wait(self._reader, self._job, number - LAST, self._now)
        return seat_rules.is_auditor_outgrown(waited_s, seats.compute_round_s(self._reader, self._job, number - 1))

    def _count_alone(self, number: int) -> int:
        if number not in self._alone:
            self._alone[number] = seats.count_newcomers_tasks(self._reader, self._job, number, self._now)
        return self._alone[number]

    def _count_proven(self) -> dict[str, int]:
        """Returns how many separate proven ones of each class are present, up to twice the votes of a task."""
        return seats.count_separate(self._job, self._present, 2 * self._spec.replication.replicas)

    def _choose_crew(
        self, task: Task, planned: Plan, replicas: Sequence[Replica], opening: Opening
    ) -> frozenset[Address]:
        """Returns the crews of the task's round, one of each class, without those that left a place of this task or
        belong to one."""
        seated = {row.worker for row in replicas if row.state in seats.SEATED}
        votes = max(self._spec.replication.replicas, planned.first_wave)
        tasks = self._spec.sizes.of(task.round)
        secret, separation = Hash(self._job.secret), self._spec.separation
        crew: set[Address] = set()
        for parties in self._present.values():
            present = (one for one in parties if one.worker in seated or not _has_tried(one, opening))
            crew |= seat_rules.choose_crew(secret, present, task.round, tasks, votes, separation)
        return frozenset(crew)


def _has_tried(party: Party, opening: Opening) -> bool:
    others = opening.parties
    return party.worker in opening.tried or any(
        assignment.is_same_party(party, other, opening.separation) for other in others
    )
