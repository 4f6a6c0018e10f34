"""Takes back merged rounds in which an audit found a wrong gradient, and makes the accepted tasks of others final.

A round is taken back once no later task is in flight, so that all workers that committed are judged and paid first. Its
other gradients stand, the revoked ones are computed again, and all later rounds are repeated from the right parameters.
With an overlap, rounds whose tasks started from parameters before that merge keep their tasks and are merged again.
"""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, exists, or_, select, update

from gradmarket.market.rules import overlap
from gradmarket.market.terms import RoundState, TaskState
from requester.context import Context
from requester.feature import features_of
from requester.features.audits import audit_rows
from requester.moves import blob_cleanup, snapshots, task_attempts
from requester.store import in_hand, jobs, merges, unneeded
from requester.store.locks import lock_row, locked_tasks
from requester.store.ready_rows import limited
from requester.store.tables import Job, Round, Task
from requester.store.work import RowReader, Work, record_event

TOPIC = "rollback"
NOT_MERGED: Final[dict[str, Any]] = {
    **dict.fromkeys(("updated", "published_update", "loss", "metrics", "drift", "closed_at")),
    "optimizer_state": "",
}
"""The columns of a round as before its merge."""
IN_FLIGHT = (
    TaskState.OPEN,
    TaskState.COMMITTING,
    TaskState.REVEALING,
    TaskState.REFERRED,
    TaskState.UPLOADING,
)


def ready(reader: RowReader, _now: float) -> Sequence[str]:
    """Returns jobs with a round to be taken back, or with accepted tasks that can no longer be revoked."""
    audited_jobs = [job for job in reader.session.scalars(_CONCERNED) if jobs.load_spec(job).audited]
    return limited(
        [
            job.id
            for job in audited_jobs
            if _may_rewind(reader, job)
            or reader.session.scalar(select(exists().where(_select_settled_tasks(reader, job))))
        ]
    )


_ACCEPTED: Final = Job.id.in_(select(Task.job_id).where(Task.state == TaskState.ACCEPTED))
_CONCERNED: Final = select(Job).where(or_(Job.rewind_to.is_not(None), _ACCEPTED)).order_by(Job.created_at)


def run(context: Context, job_id: str) -> None:
    with context.begin() as work:
        job = lock_row(work, Job, job_id)
        if _may_rewind(work, job):
            for kind, blobs in _rewind_rounds(context, work, job).items():
                unneeded.release_blobs(work, job_id, kind, blobs, context.clock())
        elif jobs.load_spec(job).audited:
            settled = select(Task).where(_select_settled_tasks(work, job))
            tasks = work.session.scalars(settled.order_by(Task.round, Task.index, Task.attempt)).all()
            for task in tasks:
                work.move(task, TaskState.FINAL)
            payloads = [task.payload for task in tasks if task.payload]
            unneeded.release_blobs(work, job_id, blob_cleanup.PAYLOAD, payloads, context.clock())
        if job.ended_at is not None:
            work.notify("collect")
    blob_cleanup.drop_unneeded(context, job_id)


def _may_rewind(reader: RowReader, job: Job) -> bool:
    """Returns whether a round is to be taken back and no later task, no audit and no merge is in flight."""
    if job.rewind_to is None or audit_rows.find_earliest_audited_round(reader, job.id) is not None:
        return False
    later = exists().where(
        Task.job_id == job.id, Task.round > _compute_last_unharmed(job, job.rewind_to), Task.state.in_(IN_FLIGHT)
    )
    merging = exists().where(Round.job_id == job.id, Round.state == RoundState.MERGING)
    return not reader.session.scalar(select(or_(later, merging)))


def _rewind_rounds(context: Context, work: Work, job: Job) -> dict[str, list[str | None]]:
    """Opens the round again; returns the blobs that its merge and later merges produced, by kind."""
    now, number = context.clock(), job.rewind_to or 0
    merged_since = (Round.job_id == job.id, Round.number >= number, Round.state != RoundState.REWOUND)
    rows = work.session.scalars(select(Round).where(*merged_since).order_by(Round.number)).all()
    unharmed = _compute_last_unharmed(job, number)
    again = [row for row in rows if row.number <= unharmed and row.state == RoundState.CLOSED]
    later = [row for row in rows if row.number > unharmed]
    blobs: dict[str, list[str | None]] = {
        blob_cleanup.PARAMETERS: [digest for row in (*again, *later) for digest in (row.updated, row.optimizer_state)],
        blob_cleanup.UPDATE: [row.published_update for row in (*again, *later)],
    }
    for row in later:
        work.set_state_now(row, RoundState.REWOUND, **NOT_MERGED)
    for row in again:
        work.set_state_now(row, RoundState.OPEN, **NOT_MERGED)
    job.rewind_to = None
    for feature in features_of(work):
        feature.rounds_undone(context, work, job, number, now)
    # the rewound rounds' tasks become final, since they are paid but useless, and all others, late or not, unused
    useless = select(Task).where(Task.job_id == job.id, Task.round > unharmed)
    for task in locked_tasks(work, useless.where(Task.state.in_([TaskState.ACCEPTED, TaskState.DIVERGED]))):
        work.move(task, TaskState.FINAL)
    unuse = update(Task).where(Task.job_id == job.id, Task.merge_round >= number).values(used=False)
    work.session.execute(unuse.execution_options(synchronize_session="fetch"))
    late = update(Task).where(Task.job_id == job.id, Task.round <= number, Task.merge_round > number)
    work.session.execute(late.values(merge_round=number).execution_options(synchronize_session="fetch"))
    # every task that has no accepted attempt, and none that goes on, is done again
    for row in again:
        merged = select(Task).where(*merges.merged_in(job.id, row.number))
        attempts = work.session.scalars(merged.order_by(Task.index, Task.round, Task.attempt)).all()
        standing = {task.index for task in attempts if task.state in (*IN_FLIGHT, TaskState.ACCEPTED)}
        last = {task.index: task for task in attempts if task.index not in standing}
        for hand in in_hand.of_tasks(work, list(last.values())).values():
            task_attempts.reissue_task(context, work, hand, now)
    record_event(work, job.id, "rewound", now, round=number, again=[row.number for row in later])
    work.notify("plan", "assign", "aggregate")
    return blobs


def _compute_last_unharmed(job: Job, number: int) -> int:
    return overlap.last_unharmed(number, jobs.load_spec(job).overlap)


def _select_settled_tasks(reader: RowReader, job: Job) -> ColumnElement[bool]:
    """Selects accepted tasks in rounds that nothing can take back; once a job and its audits are over, all of them."""
    return and_(
        Task.job_id == job.id,
        Task.state == TaskState.ACCEPTED,
        Task.merge_round < snapshots.find_first_revocable_round(reader, job),
    )
