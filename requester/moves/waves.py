"""Closes waves, which opens their secrets over the set of commitments."""

from collections.abc import Sequence

from gradmarket.market.messages import SignedWave
from gradmarket.market.rules import secrets
from gradmarket.market.terms import Address, Hash, ReplicaState, TaskState
from gradmarket.requester.context import Context
from gradmarket.requester.moves.ending import dismiss, strike
from gradmarket.requester.notifier import worker_topic
from gradmarket.requester.store import jobs
from gradmarket.requester.store.tables import Job, Replica, Task, Wave
from gradmarket.requester.store.tasks import replicas_of
from gradmarket.requester.store.work import Work

GATHERING = (TaskState.OPEN, TaskState.COMMITTING)


def advance(context: Context, work: Work, task: Task) -> None:
    """Closes the task's wave if it is complete, or if it is overdue and somebody committed."""
    if task.due_at is not None:
        _close(context, work, task, replicas_of(work, [task])[task.id], task.due_at)


def committed(context: Context, work: Work, tasks: Sequence[Task]) -> None:
    """Handles new commitments: a wave's first sets its deadline, and the last closes the wave in this transaction."""
    replicas = replicas_of(work, tasks)
    for task in (task for task in tasks if task.state in GATHERING):
        task.due_at = task.due_at or context.clock() + task.offer["wave_seconds"]
        _close(context, work, task, replicas[task.id], task.due_at)


def _close(context: Context, work: Work, task: Task, replicas: Sequence[Replica], due: float) -> None:
    now = context.clock()
    members = [r for r in replicas if r.wave == task.wave and r.state == ReplicaState.COMMITTED]
    complete = bool(members) and (len(members) >= task.wave_size or due <= now)
    if task.state in GATHERING and complete:
        _open_secret(context, work, task, members, now)
        late = dismiss(work, replicas, ReplicaState.TOO_LATE, "the wave closed before it committed")
        strike(context, work, task, late)


def _open_secret(context: Context, work: Work, task: Task, members: Sequence[Replica], now: float) -> None:
    job = work.get_one(Job, task.job_id)
    links = secrets.of_task(Hash(task.secret), jobs.spec(job).replication.max_replicas)
    sealed = [(Address(replica.worker), Hash(replica.sealed or b"")) for replica in members]
    commitments = secrets.digest_of(sealed)
    secret = links[task.wave]
    signed = SignedWave(Hash(task.offer_digest), task.wave, secret, commitments)
    work.add(
        Wave(
            task_id=task.id,
            number=task.wave,
            secret=secret,
            commitments=commitments,
            seed=secrets.wave_seed(secret, commitments),
            signature=context.sign(signed),
            closed_at=now,
        )
    )
    work.move(task, TaskState.REVEALING, due_at=now + task.offer["upload_seconds"])
    work.notify(*(worker_topic(replica.worker) for replica in members))
