"""Resumes a paused job, and retries tasks whose gradient diverged."""

from itertools import chain

from gradmarket.market.errors import Conflict
from gradmarket.market.rules.lifecycle import DIVERGED
from gradmarket.market.rules.newcomers import does_model_diverge, may_fill_places
from gradmarket.market.terms import JobState, ReplicaState, TaskState
from requester.context import Context
from requester.moves import task_attempts
from requester.store import in_hand, jobs, progress, tasks, workers
from requester.store.in_hand import TaskInHand
from requester.store.review import review_of
from requester.store.tables import Job
from requester.store.work import RowReader, Work, record_event


def resume_job(context: Context, work: Work, job: Job) -> None:
    """Resumes the job. Raises Conflict without money, or while a review may still find a divergence false."""
    if job.state == JobState.RUNNING:
        return
    if job.budget == job.deposited and not can_pay_task(work, job):
        raise Conflict("the deposit is spent: nothing could be paid", f"`gradmarket job fund {job.id} AMOUNT` first")
    diverged = tasks.list_diverged_tasks(work, job.id)
    if review_of(work).is_under_way(work, [task.id for task in diverged]):
        raise Conflict(f"{DIVERGED}, and its audit is not over: run an auditor (gradmarket auditor run)")
    now = context.clock()
    work.set_state_now(job, JobState.RUNNING, reason="", fault=None)
    tasks.forgive_failures(work, job.id)
    tasks.forget_set_aside(work, job.id)
    for hand in in_hand.of_tasks(work, diverged).values():
        work.move(hand.task, TaskState.FINAL)
        task_attempts.reissue_task(context, work, hand, now)
    record_resumption(work, job, now)


def can_pay_task(reader: RowReader, job: Job) -> bool:
    """Returns whether the deposit less the earnings pays for the quorum of one task."""
    least = jobs.load_spec(job).plan().quorum * jobs.compute_reserve_per_gradient(job)
    return job.deposited - jobs.sum_earned_units(reader, job.id) >= least


def ask_others(context: Context, work: Work, hand: TaskInHand, now: float) -> bool:
    """Issues a task that diverged again, to other workers if any are present; returns whether it did.

    Otherwise three wallets could pause a voted job without a review by an answer that is not finite, and one wallet a
    job whose verifier scores. An honest divergence repeats with the others, and pauses the job then.
    """
    job, task, spec = hand.job, hand.task, jobs.load_spec(hand.job)
    alone = spec.plan().first_wave == 1 and not spec.verifier.scored
    if alone or not spec.repeatable or _is_divergence_confirmed(work, hand):
        return False
    aside = tasks.list_set_aside(work, job, [task.round])[task.round]
    opening = progress.opening_for(job, task, hand.replicas, frozenset(), aside)
    classes = None if task.determinism_class is None else (task.determinism_class,)
    present = map(workers.build_party, workers.list_present_workers(work, job, now, classes))
    if not may_fill_places(present, opening, spec.plan().first_wave):
        return False
    repeat_by_others(context, work, hand, now)
    return True


def repeat_by_others(context: Context, work: Work, hand: TaskInHand, now: float) -> None:
    """Issues a task that diverged again, to workers that did not diverge in its round."""
    task = hand.task
    work.move(task, TaskState.FINAL, reason=f"{tasks.ASKED}{task.reason}")
    record_event(work, hand.job.id, "asked_others", now, task=task.id, round=task.round, reason=task.reason)
    task_attempts.reissue_task(context, work, hand, now)


def _is_divergence_confirmed(work: Work, hand: TaskInHand) -> bool:
    """Returns whether the model diverged: one of several that diverged in a task is cleared by a review.

    Where nobody is, many owners have to diverge. Else free identities pause a job. Who diverged is asked nothing more
    in the round, so this ends; and no answer of a round confirms it where an auditor's own did not diverge.
    """
    job, task = hand.job, hand.task
    if review_of(work).has_refuted_divergence(work, job.id, task.round):
        return False
    before = tasks.list_diverged_replicas(work, job.id, task.round)
    clearance = review_of(work).find_clearance(work, job)
    if clearance is not None and clearance.operators:
        operators = {replica.operator for replica in (*before[task.index], *hand.replicas)}
        return bool(before[task.index]) and not operators.isdisjoint(clearance.operators)
    diverged = [*chain(*before.values()), *hand.in_state(ReplicaState.DIVERGED)]
    others = tasks.list_other_replicas(work, job.id, task.round)
    return does_model_diverge(*([workers.build_party(row) for row in rows] for rows in (diverged, others)))


def record_resumption(work: Work, job: Job, now: float) -> None:
    record_event(work, job.id, "resumed", now)
    work.notify("plan", "assign", "aggregate")
