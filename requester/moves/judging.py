"""Judges a task's revealed ballots: a quorum, another wave, or no decision. The rule is market.rules.voting."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gradmarket.market.messages import Outcome
from gradmarket.market.rules import faults, stragglers, voting
from gradmarket.market.terms import ReplicaId, ReplicaState, TaskState
from gradmarket.market.wire.poll import StepFault
from requester.context import Context
from requester.feature import features_of
from requester.moves import task_attempts, verdicts
from requester.moves.ending import strike_replicas
from requester.notifier import worker_topic
from requester.store import ballots, jobs
from requester.store.in_hand import TaskInHand
from requester.store.review import review_of
from requester.store.tables import Replica, Task
from requester.store.work import Work, record_event

_REASONS: Final = (
    "{agree} of {committed} committed to another root than it did",
    "{agree} of {committed} agree, and its answer is further from theirs than is allowed for its class",
)
"""The reason of a rejection where roots were compared, and where sketches were."""


def judge_tasks(context: Context, work: Work, hands: Iterable[TaskInHand]) -> None:
    """Judges the tasks whose replicas have all revealed or whose deadline is over.

    The last reveal calls this in its own transaction.
    """
    for hand in hands:
        if hand.task.state != TaskState.REVEALING:
            continue
        task, now, committed = hand.task, context.clock(), _list_committed(hand)
        silent = [replica for replica in committed.values() if replica.state == ReplicaState.COMMITTED]
        if silent and (task.due_at or 0) > now:
            continue
        silent.sort(key=lambda replica: replica.worker)
        for replica in silent:
            work.move(replica, ReplicaState.WITHHELD, reason="it did not reveal its commitment in time")
            work.notify(worker_topic(replica.worker))
        strike_replicas(context, work, task, silent, withheld=True)
        judgement = _judge(work, hand, committed, jobs.load_spec(hand.job).refereed)
        _carry_out(context, work, hand, committed, judgement, now)


def judge_unheard(context: Context, work: Work, hand: TaskInHand) -> None:
    """Judges by its ballots a task whose answers differ and whose referee could not decide which is right."""
    committed = _list_committed(hand)
    _carry_out(context, work, hand, committed, _judge(work, hand, committed, refereed=False), context.clock())


def _judge(work: Work, hand: TaskInHand, committed: Mapping[ReplicaId, Replica], refereed: bool) -> voting.Judgement:
    groups = ballots.group_ballots(work, hand, committed)
    return voting.judge_ballots(groups, len(committed), hand.task.plan, refereed)


def _list_committed(hand: TaskInHand) -> dict[ReplicaId, Replica]:
    """Returns the replicas that committed to the task, in this wave or before."""
    return {ReplicaId(replica.id): replica for replica in hand.replicas if replica.committed_at is not None}


def _carry_out(
    context: Context,
    work: Work,
    hand: TaskInHand,
    replicas: dict[ReplicaId, Replica],
    judgement: voting.Judgement,
    now: float,
) -> None:
    task = hand.task
    # a worker that commits once the seed is known can hide errors from sketches
    may_ask_more = not jobs.load_spec(hand.job).verifier.sketched
    if isinstance(judgement, voting.Quorum):
        agreeing = [replicas[id_] for id_ in sorted(judgement.agreeing)]
        rejected = [
            r for id_, r in replicas.items() if id_ not in judgement.agreeing and r.state == ReplicaState.REVEALED
        ]
        refuted = rejected or [
            row for feature in features_of(work) for row in feature.list_overruled(work, hand, agreeing[0].root or "")
        ]
        record_outvoted(work, refuted, now)
        reason = _REASONS[hand.task.allowed is not None].format(agree=len(agreeing), committed=len(replicas))
        accept_answer(context, work, hand, agreeing, rejected, reason, now)
    elif isinstance(judgement, voting.Another) and may_ask_more and jobs.is_task_wanted(work, hand.job, task):
        patience = now + task.offer.lease_seconds + task.offer.wave_seconds
        wave = {"wave": task.wave + 1, "wave_size": judgement.wave, "due_at": None, "patience_until": patience}
        work.move(task, TaskState.OPEN, **wave)
        hand.wave = None
        record_event(work, task.job_id, "split", now, task=task.id, committed=len(replicas), more=judgement.wave)
        work.notify("assign")
    elif isinstance(judgement, voting.Hearing):
        work.move(task, TaskState.REFERRED, due_at=None)
        for feature in features_of(work):
            feature.hear_task(work, task, now)
        record_event(work, task.job_id, "disputed", now, task=task.id, round=task.round, committed=len(replicas))
        work.notify(*(worker_topic(replica.worker) for replica in replicas.values()))
    elif isinstance(judgement, voting.Referral):
        review_of(work).refer_task(work, task, now)
        if task.state != TaskState.REFERRED:
            work.move(task, TaskState.REFERRED, due_at=None)
    else:
        fail_task(context, work, hand, "no quorum among those that the job may ask", now)


def accept_answer(
    context: Context,
    work: Work,
    hand: TaskInHand,
    agreeing: Sequence[Replica],
    rejected: Sequence[Replica],
    reason: str,
    now: float,
) -> None:
    """Signs the verdicts of a decided task, and asks one of the `agreeing` for the payload."""
    task, uploader = hand.task, _choose_uploader(hand, agreeing)
    for replica in agreeing:
        verdicts.sign_verdict(context, work, task, replica, ReplicaState.AGREE, Outcome.ACCEPTED, replica.root)
    for replica in rejected:
        verdicts.sign_verdict(
            context, work, task, replica, ReplicaState.REJECTED, Outcome.REJECTED, uploader.root, reason
        )
        details = {"task": task.id, "replica": replica.id, "worker": replica.worker}
        record_event(work, task.job_id, "rejected", now, **details, reason=reason)
    _request_payload(work, task, uploader, now)


def record_outvoted(work: Work, rejected: Sequence[Replica], now: float) -> None:
    """Records that ballots of these replicas were found wrong by others."""
    for feature in features_of(work):
        feature.ballots_refuted(work, rejected, now)


def _choose_uploader(hand: TaskInHand, agreeing: Sequence[Replica]) -> Replica:
    """Returns the agreeing replica that the wave's seed chooses to upload first."""
    by_id = {ReplicaId(replica.id): replica for replica in agreeing}
    order = voting.upload_order(hand.wave_seed, {id_: replica.worker for id_, replica in by_id.items()})
    return by_id[order[0]]


def _request_payload(work: Work, task: Task, uploader: Replica, now: float) -> None:
    """Asks the uploader for its payload, which is the one that is merged and reviewed."""
    request: dict[str, Any] = {
        "uploader": uploader.id,
        "root": uploader.root,
        "due_at": now + task.offer.upload_seconds,
        "due_most": stragglers.compute_latest_end(now, task.offer.upload_seconds),
        "determinism_class": uploader.determinism_class,
    }
    if task.state != TaskState.UPLOADING:
        work.move(task, TaskState.UPLOADING, **request)
    for name, value in request.items():
        setattr(task, name, value)
    work.notify(worker_topic(uploader.worker))


def request_next_payload(
    context: Context, work: Work, hand: TaskInHand, agreeing: Sequence[Replica], none_left: str, now: float
) -> None:
    """Asks another agreeing replica for the payload; fails the attempt if none is left."""
    if agreeing:
        _request_payload(work, hand.task, _choose_uploader(hand, agreeing), now)
    else:
        fail_task(context, work, hand, none_left, now)


def fail_task(context: Context, work: Work, hand: TaskInHand, reason: str, now: float) -> None:
    """Fails the attempt without blame or payment, and reissues the task."""
    # a fault that one of the task's workers reported follows the reason
    reported = [replica.fault for replica in hand.replicas if replica.fault is not None]
    claim = faults.describe_fault(StepFault(**reported[0])) if reported else ""
    task, reason = hand.task, reason if not claim or claim in reason else f"{reason}; a worker reports: {claim}"
    verdicts.sign_inconclusive_verdicts(context, work, hand, reason)
    work.move(task, TaskState.FAILED, reason=reason, ended_at=now)
    record_event(work, task.job_id, "task_failed", now, task=task.id, reason=reason)
    task_attempts.reissue_task(context, work, hand, now)
