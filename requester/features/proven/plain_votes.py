"""Plain votes where a job settled on a class without auditor: its voters, and the answers that they refute."""

from collections.abc import Collection, Sequence
from functools import cached_property

from sqlalchemy import select

from gradmarket.market.features.proven import seat_rules
from gradmarket.market.rules.assignment import Candidate, Idle, Mixable
from gradmarket.market.rules.replication import BEST, proven
from gradmarket.market.terms import Hash, Plan, ReplicaState, TaskState
from requester.features.audits import audited_classes
from requester.features.proven import seats
from requester.moves.candidates import CandidatePool, OpenPlaces
from requester.store import jobs
from requester.store.tables import Job, Replica, Task
from requester.store.work import RowReader


class PlainPool(CandidatePool):
    """Candidates of a job in whose class a plain majority decides; some tasks have a hidden seat besides."""

    def __init__(self, reader: RowReader, job: Job, asking: Sequence[Candidate], mixable: Mixable, now: float) -> None:
        super().__init__(reader, job, list_plain_voters(reader, job, asking, mixable, now), mixable, now)
        self._reader, self._job, self._now = reader, job, now
        self._plain, self._hidden = jobs.load_spec(job).unaudited_plans

    @cached_property
    def _may_hide(self) -> bool:
        """Returns whether only proven ones vote for want of an auditor, and are enough for a hidden seat besides."""
        needed = jobs.load_spec(self._job).replication.replicas + 1
        return seats.count_proven(self._reader, self._job, self.mixable, self._now, needed) >= needed

    def choose_plan(self, task: Task) -> Plan:
        rate = jobs.load_spec(self._job).plan(BEST).audit
        if not self._may_hide or not seat_rules.is_seat_hidden(Hash(task.secret), rate):
            return self._plain
        return self._hidden if seats.pays_hidden_seat(self._reader, self._job, task.round) else self._plain

    def explain_no_place(self, candidate: Candidate, places: OpenPlaces) -> Idle | None:
        if candidate.party.worker not in self.candidates:
            return Idle.PROVEN_VOTE
        return super().explain_no_place(candidate, places)


def list_plain_voters(
    reader: RowReader, job: Job, candidates: Sequence[Candidate], mixable: Mixable, now: float
) -> list[Candidate]:
    """Returns the workers that may vote where a plain majority decides for want of an auditor (rules.classes).

    Only proven ones where they are enough, so that nobody gains a vote while the auditor is away; else everybody. Where
    the job's auditors were able to check it and leave audits unanswered now, others do not vote at all.
    """
    spec = jobs.load_spec(job)
    votes = spec.replication.replicas
    if seats.count_proven(reader, job, mixable, now, votes) < votes and not audited_classes.is_lately_unable(
        reader, job, now
    ):
        return list(candidates)
    standings = seats.load_standings(reader, job, candidates, now)
    return [one for one in candidates if proven.is_proven(standings[one.party.worker], spec.proof or 0)]


def list_overruled(reader: RowReader, task: Task, root: str, plans: Collection[Plan]) -> list[Replica]:
    """Returns the answers to earlier attempts at a task, from the same parameters, that a vote of one voice refutes.

    Both of these `plans`: proven ones split, where no auditor exists that would settle it.
    """
    if task.attempt == 0 or task.plan not in plans:
        return []
    earlier = (
        select(Replica, Task)
        .join(Task, Task.id == Replica.task_id)
        .where(
            Task.job_id == task.job_id,
            Task.round == task.round,
            Task.index == task.index,
            Task.state == TaskState.FAILED,
            Replica.state == ReplicaState.INCONCLUSIVE,
            Replica.root.is_not(None),
            Replica.root != root,
            Replica.determinism_class == task.determinism_class,
        )
    )
    return [
        replica
        for replica, other in reader.session.execute(earlier)
        if other.plan in plans and other.offer.parameters == task.offer.parameters
    ]
