"""Faults of a job's own steps that workers report: equal reports of separate workers pause the job.

The rule is market.rules.faults.
"""

from collections.abc import Collection

from sqlalchemy import exists, or_, select
from sqlalchemy.orm import aliased

from gradmarket.market.features import fault_reports
from gradmarket.market.features.fault_reports import NOBODY, FaultClaim, Left
from gradmarket.market.rules import assignment, faults
from gradmarket.market.rules.assignment import SOON
from gradmarket.market.terms import JobState, ReplicaState, TaskState
from gradmarket.market.wire.poll import StepFault
from requester.context import Context
from requester.feature import Feature
from requester.moves import judging
from requester.moves.ending import work_off
from requester.store import ballots, jobs, progress, workers
from requester.store.in_hand import TaskInHand
from requester.store.tables import Earned, Replica, Task
from requester.store.work import RowReader, Work, record_event


def pause_faulty_job(context: Context, work: Work, hand: TaskInHand, in_vain: bool = False) -> bool:
    """Finds out whether the job is at fault, and returns it: then nobody else is asked for the attempt.

    The job pauses once no worker holds a lease of the task any more. `in_vain`: no worker came that could still be
    asked.
    """
    faulty = [replica for replica in hand.replicas if replica.fault is not None]
    if not faulty or any(replica.sealed is not None for replica in hand.replicas):
        return False
    # the claims of the attempt that count: a party that reported a fault where another's answer was accepted has none
    reporters = [workers.build_party(replica) for replica in faulty]
    disproved = list_disproved_keys(work, hand.job.id, assignment.list_answerable_keys(reporters))
    known = list_accepted_workers(work, {replica.worker for replica in faulty})
    claims = [
        (replica, FaultClaim(party, StepFault(**(replica.fault or {})).place, replica.worker in known))
        for replica, party in zip(faulty, reporters, strict=True)
        if disproved.isdisjoint(assignment.list_answerable_keys([party]))
    ]
    quorum, separation = hand.task.plan.quorum, jobs.load_spec(hand.job).separation
    reported = [claim for _replica, claim in claims]
    if not fault_reports.find_shared_claims(reported, quorum, separation, NOBODY):
        return False
    left = NOBODY
    if not in_vain:  # those that could soon be asked may report it too
        now = context.clock()
        opening = progress.opening_for(
            hand.job, hand.task, hand.replicas, ballots.list_mixable_classes(work, hand.job, now)
        )
        candidates = progress.candidates_of(work, hand.job, workers.list_live_workers(work, now), now)
        others = {one.party.worker for one in candidates if assignment.why_not(one, opening) in SOON}
        known = list_accepted_workers(work, others)
        left = Left(len(known), len(others - known))
    shared = fault_reports.find_shared_claims(reported, quorum, separation, left)
    if not shared:
        return False
    hand.task.wave_size = len(hand.in_state(ReplicaState.LEASED))
    if hand.task.wave_size == 0:
        accused = [replica for replica, claim in claims if claim in shared]
        parties = fault_reports.count_separate_parties([claim.party for claim in shared], separation)
        # the job is at fault: its strikes are taken back, it pauses, and the task fails
        now, fault, task, job = context.clock(), StepFault(**(accused[0].fault or {})), hand.task, hand.job
        reason = fault_reports.describe_pause(fault, parties, task.index, task.round)
        work_off(context, work, task, accused)
        if job.state == JobState.RUNNING:
            details = {
                "fault": fault.model_dump(mode="json"),
                "round": task.round,
                "task": task.index,
                "parties": parties,
            }
            work.set_state_now(job, JobState.PAUSED, reason=reason, fault=details)
            record_event(work, job.id, "paused", now, reason=reason, **details)
        if task.state == TaskState.COMMITTING:
            work.move(task, TaskState.OPEN)
        judging.fail_task(context, work, hand, faults.describe_fault(fault), now)
    return True


def list_accepted_workers(reader: RowReader, addresses: Collection[str]) -> set[str]:
    """Returns those of the workers that had an answer accepted before."""
    return set(reader.session.scalars(select(Earned.worker).where(Earned.worker.in_(addresses)).distinct()))


def list_disproved_keys(reader: RowReader, job_id: str, keys: Collection[str]) -> set[str]:
    """Returns the keys of all that reported a fault for a task to which another worker's answer was accepted.

    Looks at reports under any of `keys`, which are wallets and operators: a wallet that joined another operator since
    is found by its address, and the other wallets of an operator by that.
    """
    failed, other = aliased(Task), aliased(Task)
    same = (other.job_id == failed.job_id, other.round == failed.round, other.index == failed.index)
    done = exists().where(*same, other.payload.is_not(None))
    claims = select(Replica.worker, Replica.operator).join(failed, failed.id == Replica.task_id)
    theirs = or_(Replica.worker.in_(keys), Replica.operator.in_(keys))
    refuted = claims.where(Replica.job_id == job_id, theirs, Replica.fault.is_not(None), done)
    return {key for row in reader.session.execute(refuted.distinct()) for key in row}


class FaultReportsFeature(Feature):
    name = "fault_reports"

    def blame_job(self, context: Context, work: Work, hand: TaskInHand, in_vain: bool) -> bool:
        return pause_faulty_job(context, work, hand, in_vain)
