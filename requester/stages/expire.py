"""Handles silent workers: expires leases, fails tasks that wait in vain, and replaces uploaders that do not upload.

A late one may get a backup (feature.Lateness).
"""

from collections.abc import Sequence

from gradmarket.market.terms import ReplicaState, TaskState
from requester.context import Context
from requester.feature import lateness_in
from requester.moves import faults, judging
from requester.moves.ending import strike_replicas
from requester.moves.faults import reopen_task
from requester.notifier import worker_topic
from requester.store import ready_rows, tasks
from requester.store.in_hand import TaskInHand, lock_task_if_free
from requester.store.work import RowReader, record_event

TOPIC = "expire"


def ready(reader: RowReader, now: float) -> Sequence[str]:
    return list(
        dict.fromkeys([*ready_rows.list_lapsed_tasks(reader, now), *lateness_in(reader).list_late_tasks(reader, now)])
    )


def _in_vain(hand: TaskInHand, now: float) -> bool:
    """Whether the task waited long enough for another worker, and has no replica leased or committed."""
    patience = hand.task.patience_until
    waited = hand.task.state == TaskState.OPEN and patience is not None and patience < now
    return waited and not hand.in_state(*ready_rows.BUSY)


def run(context: Context, task_id: str) -> float | None:
    now = context.clock()
    with context.begin() as work:
        hand = lock_task_if_free(work, task_id)
        if hand is None:
            return context.settings.sweep_s
        task, silent = hand.task, [row for row in hand.in_state(ReplicaState.LEASED) if row.lease_until < now]
        for replica in silent:
            work.move(replica, ReplicaState.EXPIRED, reason="the lease lapsed without a commitment")
            reopen_task(context, work, hand)
            work.notify(worker_topic(replica.worker))
        strike_replicas(context, work, task, silent)
        if silent and task.state != TaskState.CANCELLED:
            faults.is_job_at_fault(context, work, hand)
        if _in_vain(hand, now) and faults.somebody_comes(context, work, hand):
            task.patience_until = now + task.offer.lease_seconds + task.offer.wave_seconds
        elif _in_vain(hand, now) and not faults.is_job_at_fault(context, work, hand, True):
            judging.fail_task(context, work, hand, "no further worker that may take it came in time", now)
        if task.state == TaskState.UPLOADING and task.due_at is not None and task.due_at < now:
            owed = tasks.awaits_review(task)
            for replica in hand.in_state(ReplicaState.AGREE):
                if replica.id == task.uploader:
                    work.move(replica, ReplicaState.WITHHELD, reason="it did not bring the payload it had agreed on")
                    strike_replicas(context, work, task, [replica], withheld=True)
                    about = {"task": task.id, "replica": replica.id, "worker": replica.worker}
                    record_event(work, task.job_id, "withheld", now, **about)
                    work.notify(worker_topic(replica.worker))
            left = hand.in_state(ReplicaState.AGREE)
            nobody = "no auditor brought its payload in time" if owed else "every agreeing worker withheld the payload"
            judging.request_next_payload(context, work, hand, left, nobody, now)
        lateness_in(work).request_backup(work, hand, now)
    return None
