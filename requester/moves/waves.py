"""Closes waves, which opens their secrets over the set of commitments."""

from collections.abc import Iterable

from gradmarket.market.messages import SignedWave
from gradmarket.market.rules import secrets
from gradmarket.market.terms import Hash, ReplicaState, TaskState
from requester.context import Context
from requester.moves.ending import end_leases, strike_replicas
from requester.notifier import worker_topic
from requester.store import jobs
from requester.store.in_hand import TaskInHand
from requester.store.ready_rows import GATHERING
from requester.store.tables import Wave
from requester.store.work import Work


def handle_commitments(context: Context, work: Work, hands: Iterable[TaskInHand]) -> None:
    """Handles new commitments: a wave's first sets its deadline, and the last closes the wave in this transaction."""
    for hand in hands:
        task = hand.task
        if task.state in GATHERING:
            task.due_at = task.due_at or context.clock() + task.offer.wave_seconds
            close_wave_if_due(context, work, hand, task.due_at)


def close_wave_if_due(context: Context, work: Work, hand: TaskInHand, due: float) -> None:
    """Closes the task's wave if it is complete, or if it is overdue and has a commitment."""
    now, task = context.clock(), hand.task
    members = [replica for replica in hand.in_state(ReplicaState.COMMITTED) if replica.wave == task.wave]
    complete = bool(members) and (len(members) >= task.wave_size or due <= now)
    if task.state in GATHERING and complete:
        links = secrets.of_task(task.secret, jobs.load_spec(hand.job).replication.max_replicas)
        sealed = [(replica.worker, Hash(replica.sealed or b"")) for replica in members]
        commitments = secrets.digest_of(sealed)
        secret = links[task.wave]
        signed = SignedWave(task.offer_digest, task.wave, secret, commitments)
        hand.wave = Wave(
            task_id=task.id,
            number=task.wave,
            secret=secret,
            commitments=commitments,
            seed=secrets.wave_seed(secret, commitments),
            signature=context.sign(signed),
            closed_at=now,
        )
        work.add(hand.wave)
        work.move(task, TaskState.REVEALING, due_at=now + task.offer.upload_seconds)
        work.notify(*(worker_topic(replica.worker) for replica in members))
        # where the task had a backup, one lease is left over in any case
        if hand.task.backups:
            left = end_leases(work, hand.replicas, reason="the task has as many answers as it needs already")
            overtaken = [one for one in left if one.expected_at is not None and one.expected_at < now]
            strike_replicas(context, work, hand.task, overtaken)  # without this a worker could stall at no cost
        else:
            late = end_leases(work, hand.replicas, ReplicaState.TOO_LATE, "the wave closed before it committed")
            strike_replicas(context, work, hand.task, late)
