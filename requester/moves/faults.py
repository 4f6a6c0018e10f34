"""What workers say kept them from computing: where separate ones share it, it is the job's fault, and the job pauses.

The rule is market.rules.faults.
"""

from collections.abc import Collection, Sequence

from sqlalchemy import exists, select
from sqlalchemy.orm import Session, aliased

from gradmarket.market.rules import assignment, faults
from gradmarket.market.rules.assignment import Reason
from gradmarket.market.rules.faults import NOBODY, FaultClaim, Left, StepFault
from gradmarket.market.rules.replication import Plan
from gradmarket.market.terms import JobState, ReplicaState, TaskState
from gradmarket.requester.context import Context
from gradmarket.requester.moves import judging
from gradmarket.requester.moves.ending import strike, work_off
from gradmarket.requester.store import ballots, jobs, progress, workers
from gradmarket.requester.store.event_log import tell
from gradmarket.requester.store.session import notify
from gradmarket.requester.store.tables import Earned, Job, Replica, Task
from gradmarket.requester.store.tasks import replicas_of
from gradmarket.requester.store.transitions import move, move_now

SOON = (None, Reason.AT_CAPACITY, Reason.NO_RESERVATION)
"""Who has nothing else against it may still be asked."""


def claimed(context: Context, session: Session, task: Task, replica: Replica, fault: StepFault) -> None:
    """A worker gave its lease back with this: a strike, until it is known to be the job's fault."""
    replica.fault = fault.model_dump(mode="json")
    job = session.get_one(Job, task.job_id)
    if job.fault is None or StepFault(**job.fault["fault"]).place != fault.place:
        strike(context, session, task, [replica])
    if not settled(context, session, task):
        reopen(session, task)


def settled(context: Context, session: Session, task: Task, in_vain: bool = False) -> bool:
    """Whether nobody else is to be asked for the attempt, for what kept it from being computed is the job's fault.

    The job pauses once nobody is at work on it any more. `in_vain`: nobody came who could still be asked.
    """
    replicas = replicas_of(session, [task])[task.id]
    claims = _claims(session, task, replicas)
    if not claims or any(replica.sealed is not None for replica in replicas):
        return False
    job, quorum = session.get_one(Job, task.job_id), Plan(**task.plan).quorum
    separation = jobs.spec(job).separation
    named = [claim for _replica, claim in claims]
    if not faults.shared(named, quorum, separation, NOBODY):
        return False
    left = NOBODY if in_vain else _left(context, session, job, task, replicas)
    shared = faults.shared(named, quorum, separation, left)
    if not shared:
        return False
    task.wave_size = sum(replica.state == ReplicaState.LEASED for replica in replicas)
    if task.wave_size == 0:
        accused = [replica for replica, claim in claims if claim in shared]
        _find(context, session, job, task, accused, faults.separate([claim.party for claim in shared], separation))
    return True


def reopen(session: Session, task: Task) -> None:
    """A place in the task's wave is free."""
    if task.state == TaskState.COMMITTING:
        move(task, TaskState.OPEN)
    notify(session, "assign", "close")


def _claims(session: Session, task: Task, replicas: Sequence[Replica]) -> list[tuple[Replica, FaultClaim]]:
    """Those of the attempt that count."""
    made = [replica for replica in replicas if replica.fault is not None]
    if not made:
        return []
    operators, addresses = {replica.operator for replica in made}, {replica.worker for replica in made}
    disproved, known = _disproved(session, task.job_id, operators), _known(session, addresses)
    return [
        (replica, FaultClaim(workers.party(replica), StepFault(**replica.fault).place, replica.worker in known))
        for replica in made
        if replica.fault is not None and replica.operator not in disproved
    ]


def _known(session: Session, addresses: Collection[str]) -> set[str]:
    """Those of the workers whose work was accepted before."""
    return set(session.scalars(select(Earned.worker).where(Earned.worker.in_(addresses)).distinct()))


def _disproved(session: Session, job_id: str, operators: Collection[str]) -> set[str]:
    """Those who claimed that something cannot be computed of which another's answer was accepted."""
    told, other = aliased(Task), aliased(Task)
    same = (other.job_id == told.job_id, other.round == told.round, other.index == told.index)
    done = exists().where(*same, other.payload.is_not(None))
    claims = select(Replica.operator).join(told, told.id == Replica.task_id)
    theirs = claims.where(Replica.job_id == job_id, Replica.operator.in_(operators), Replica.fault.is_not(None), done)
    return set(session.scalars(theirs.distinct()))


def _left(context: Context, session: Session, job: Job, task: Task, replicas: Sequence[Replica]) -> Left:
    now = context.clock()
    alive = workers.live(session, now)
    opening = progress.opening_for(job, task, replicas, ballots.mixable(session, job))
    candidates = progress.candidates_of(session, job, alive, now)
    parties = [each.party for each in candidates if assignment.why_not(each, opening) in SOON]
    known = _known(session, {party.worker for party in parties})
    return Left(sum(party.worker in known for party in parties), sum(party.worker not in known for party in parties))


def _find(context: Context, session: Session, job: Job, task: Task, accused: Sequence[Replica], parties: int) -> None:
    """The job's fault: nobody is struck for it, and the job pauses."""
    now, fault = context.clock(), StepFault(**(accused[0].fault or {}))
    reason = faults.sentence(fault, parties, task.index, task.round)
    work_off(context, session, task, accused)
    if job.state == JobState.RUNNING:
        found = {"fault": fault.model_dump(mode="json"), "round": task.round, "task": task.index, "parties": parties}
        move_now(session, job, JobState.PAUSED, reason=reason, fault=found)
        tell(session, job.id, "paused", now, reason=reason, **found)
    if task.state == TaskState.COMMITTING:
        move(task, TaskState.OPEN)
    judging.fail(context, session, task, faults.described(fault), now)
