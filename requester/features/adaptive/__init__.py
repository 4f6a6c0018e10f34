"""Adaptive replication: a worker with a record, and with a stake that covers its work, is checked less.

The stake is the worker's own, since the worker signs each answer for which it can be slashed. The part that covers work
under way is not free: leases, ballots that are not judged yet, and accepted tasks that wait for an audit.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import exists, func, or_, select

from gradmarket.market.rules import assignment
from gradmarket.market.rules.assignment import Candidate, Mixable
from gradmarket.market.rules.lifecycle import AUDIT_OPEN, IN_FLIGHT
from gradmarket.market.rules.replication import STRANGER, Lead
from gradmarket.market.rules.replication.adaptive import compute_unused_stake
from gradmarket.market.terms import ReplicaState
from requester.feature import Feature
from requester.features import reputation as reputations
from requester.features.audits.audit_tables import Audit
from requester.moves.candidates import CandidatePool, Deal, OpenPlaces
from requester.store import jobs
from requester.store.tables import Account, Job, Replica, Task
from requester.store.work import RowReader


class LeadPool(CandidatePool):
    """Candidates of a job in which the record of the worker that is drawn first decides how the task is checked."""

    def __init__(self, reader: RowReader, job: Job, asking: Sequence[Candidate], mixable: Mixable, now: float) -> None:
        super().__init__(reader, job, asking, mixable, now)
        self._spec = jobs.load_spec(job)
        self._gain = self._spec.gain or 0.0
        known = {candidate.party.worker: candidate for candidate in asking}
        # the stake at risk in the job by worker, in units
        staked = select(Account.worker, Account.at_risk).where(Account.job_id == job.id, Account.at_risk > 0)
        stakes = dict(reader.session.execute(staked).all())
        # how many tasks hold some of it, by worker
        audited = exists().where(Audit.task_id == Replica.task_id, Audit.state.in_(AUDIT_OPEN))
        holding = or_(Replica.state.in_(IN_FLIGHT), (Replica.state == ReplicaState.PAYABLE) & audited)
        counted = select(Replica.worker, func.count()).where(Replica.job_id == job.id, holding)
        held = dict(reader.session.execute(counted.group_by(Replica.worker)).all())
        records = reputations.load_standings(
            reader, job, {candidate.party.operator for candidate in known.values()}, now
        )
        result = {}
        for worker, candidate in known.items():
            standing = records.get((candidate.party.operator, candidate.determinism_class), 0.0)
            cover = compute_unused_stake(stakes.get(worker, 0) / job.price, held.get(worker, 0), self._gain)
            result[worker] = Lead(standing, cover)
        self._leads = result

    def draw(self, places: OpenPlaces, able: Sequence[Candidate]) -> Deal | None:
        """Draws a task's first wave: the first worker in the draw's order is the lead, whose record decides the plan.

        Takes the next worker as lead if too few workers are there for the plan. If a worker gives its lease back, its
        plan is dropped too, so that the next lead is not checked by another worker's record.
        """
        if not places.fresh:
            return super().draw(places, able)
        opening, seed, too_many = places.opening, places.seed, len(able) + 1
        for worker in assignment.draw_order(seed, [candidate.party.worker for candidate in able]):
            lead = self.candidates[worker]
            plan = self._spec.plan(self._leads.get(worker, STRANGER))
            if plan.first_wave >= too_many:
                continue
            at_work = (*opening.at_work, lead.determinism_class)
            parties, again = (*opening.parties, lead.party), opening.again - {worker}
            beside = replace(opening, parties=parties, at_work=at_work, again=again)
            others = assignment.draw_candidates(seed, able, beside, plan.first_wave - 1)
            if len(others) == plan.first_wave - 1:
                return Deal(places.task, plan.first_wave, [lead, *others], plan)
            too_many = plan.first_wave
        return None

    def lease(self, candidate: Candidate, task: Task) -> None:
        super().lease(candidate, task)
        lead = self._leads.get(candidate.party.worker, STRANGER)
        self._leads[candidate.party.worker] = Lead(lead.standing, max(0.0, lead.cover - self._gain))


class AdaptiveFeature(Feature):
    name = "adaptive"
    needs = ("audits", "reputation")

    def choose_pool(self, reader: RowReader, job: Job, now: float) -> type[CandidatePool] | None:
        return None if jobs.load_spec(job).gain is None else LeadPool
