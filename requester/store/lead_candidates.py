"""What a replication policy knows of a possible lead: its operator's record, and its own free stake.

A stake is the worker's, since the worker signs what it is slashed for. The part that covers work under way is not free:
leases, ballots that are not judged yet, and accepted tasks that wait for an audit.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from sqlalchemy import exists, func, or_, select

from gradmarket.market.rules import exposure
from gradmarket.market.rules.assignment import Candidate
from gradmarket.market.rules.lifecycle import AUDIT_OPEN, IN_FLIGHT
from gradmarket.market.rules.replication import Lead
from gradmarket.market.terms import Address, ReplicaState
from requester.store import jobs, reputations
from requester.store.among import is_in_bound_list
from requester.store.tables import Account, Audit, Job, Replica, Reputation
from requester.store.work import RowReader


def compute_leads(
    reader: RowReader, job: Job, candidates: Iterable[Candidate], gain: float, now: float
) -> dict[Address, Lead]:
    """Returns each candidate's standing and cover; `gain` is what a wrong gradient brings, in prices of a task."""
    known = {candidate.party.worker: candidate for candidate in candidates}
    stakes, held = _load_stakes(reader, job), _count_pending_tasks(reader, job)
    records = load_standings(reader, job, {candidate.party.operator for candidate in known.values()}, now)
    result = {}
    for worker, candidate in known.items():
        standing = records.get((candidate.party.operator, candidate.determinism_class), 0.0)
        cover = exposure.compute_unused_stake(stakes.get(worker, 0) / job.price, held.get(worker, 0), gain)
        result[worker] = Lead(standing, cover)
    return result


def _load_stakes(reader: RowReader, job: Job) -> Mapping[str, int]:
    """Returns the stake at risk in the job by worker, in units."""
    staked = select(Account.worker, Account.at_risk).where(Account.job_id == job.id, Account.at_risk > 0)
    return dict(reader.session.execute(staked).all())


def _count_pending_tasks(reader: RowReader, job: Job) -> Mapping[str, int]:
    """Returns by worker how many tasks hold some of its stake."""
    waiting = exists().where(Audit.task_id == Replica.task_id, Audit.state.in_(AUDIT_OPEN))
    held = or_(Replica.state.in_(IN_FLIGHT), (Replica.state == ReplicaState.PAYABLE) & waiting)
    counted = select(Replica.worker, func.count()).where(Replica.job_id == job.id, held)
    return dict(reader.session.execute(counted.group_by(Replica.worker)).all())


def load_standings(reader: RowReader, job: Job, operators: set[str], now: float) -> Mapping[tuple[str, str], float]:
    """Returns standings in the job by operator and determinism class."""
    here = jobs.compute_cost(job)
    rows = reader.session.scalars(_RECORDS, {"operators": operators}).all()
    return {
        (row.operator, row.determinism_class): reputations.compute_operator_standing(row, max(now, row.at), here)
        for row in rows
    }


_RECORDS: Final = select(Reputation).where(is_in_bound_list(Reputation.operator, "operators"))


def subtract_cover(lead: Lead, gain: float) -> Lead:
    """Returns the lead with one more task under way."""
    return Lead(lead.standing, max(0.0, lead.cover - gain))
