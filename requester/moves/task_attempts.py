"""Creates tasks and their further attempts, each with its signed offer."""

from gradmarket.market.messages import Offer
from gradmarket.market.rules import lifecycle, secrets
from gradmarket.market.signing import digest_struct
from gradmarket.market.terms import Digest, JobState, RoundState, TaskState, Units, domain_hash
from gradmarket.market.wire.poll import hash_of
from requester.context import Context
from requester.store import jobs, tasks
from requester.store.in_hand import TaskInHand
from requester.store.review import review_of
from requester.store.tables import Job, Round, Task
from requester.store.work import Work, record_event


def build_task(context: Context, job: Job, row: Round, index: int, attempt: int, now: float) -> Task:
    """Returns a new task with its signed offer; its seed depends on the job's seed and the indices alone."""
    spec = jobs.load_spec(job)
    plan, position = spec.plan(), (row.number, index, attempt)
    secret = domain_hash("secret", job.secret, *(part.to_bytes(8, "big") for part in position))
    offer = Offer(
        job=job.chain_job or 0,
        spec=hash_of(Digest(job.spec_digest or "")),
        round=row.number,
        task=index,
        attempt=attempt,
        parameters=hash_of(row.parameters),
        seed=spec.seed_of(row.number, index),
        price=Units(row.price),
        anchor=secrets.anchor_of_task(secret, spec.replication.max_replicas),
        lease_seconds=spec.deadlines.lease_s,
        wave_seconds=spec.deadlines.wave_s,
        upload_seconds=spec.deadlines.upload_s,
    )
    return Task(
        id=f"{job.id}-{row.number}-{index}-{attempt}",
        job_id=job.id,
        round=row.number,
        index=index,
        attempt=attempt,
        state=TaskState.OPEN,
        offer=offer,
        offer_digest=digest_struct(context.domain, offer),
        offer_signature=context.sign(offer),
        secret=secret,
        plan=plan,
        wave_size=plan.first_wave,
        created_at=now,
    )


def reissue_task(context: Context, work: Work, hand: TaskInHand, now: float) -> None:
    """Issues another attempt at a task; pauses the job after too many failed attempts.

    Unanswered attempts do not count, nor do referred ones without a right answer: silent workers and liars pause no
    job. Attempts that diverged do not count either, which `moves.resume` counts, nor those of a private job: it refuses
    each holder once. A task of an earlier round begins anew from the parameters of the round that merges it; if that
    round is not open yet, it opens with the task.
    """
    job, failed = hand.job, hand.task
    if job.state not in (JobState.RUNNING, JobState.PAUSED) or not jobs.is_task_wanted(work, job, failed):
        return
    row = work.get(Round, (job.id, failed.merge_round))
    if row is None or row.state != RoundState.OPEN:
        return
    attempt = failed.attempt + 1
    if row.number != failed.round:
        attempt = jobs.first_attempts(work, job.id, row.number).get(failed.index, 0)
    alone = not jobs.load_spec(job).repeatable  # a refused holder is drawn no more, so such attempts end
    diverged = failed.reason.startswith(tasks.ASKED)
    blameless = alone or diverged or hand.in_state(*lifecycle.SILENT) or review_of(work).was_referred(work, failed)
    failures = failed.failures + (not blameless)
    if failures >= context.settings.max_attempts and job.state == JobState.RUNNING:
        work.set_state_now(job, JobState.PAUSED, reason=f"task {failed.index} of round {failed.round}: {failed.reason}")
        record_event(work, job.id, "paused", now, reason=job.reason)
    again = build_task(context, job, row, failed.index, attempt, now)
    again.failures = failures
    work.add(again)
    record_event(work, job.id, "task_reissued", now, round=row.number, task=failed.index, attempt=attempt)
    work.notify("assign")
