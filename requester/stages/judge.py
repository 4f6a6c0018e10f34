"""Revealed ballots become a verdict, another wave, or nothing: the rule is market.rules.voting."""

from collections.abc import Sequence

from sqlalchemy import and_, exists, select
from sqlalchemy.orm import Session

from gradmarket.market.messages import Outcome
from gradmarket.market.rules import voting
from gradmarket.market.rules.replication import Plan
from gradmarket.market.rules.verifiers import exact
from gradmarket.market.terms import Digest, Hash, ReplicaId, ReplicaState, TaskState
from gradmarket.requester.bell import worker_topic
from gradmarket.requester.context import Context
from gradmarket.requester.stages import plan, verdicts
from gradmarket.requester.stages.ending import strike
from gradmarket.requester.store import jobs, reputations
from gradmarket.requester.store.events import tell
from gradmarket.requester.store.locks import claimed_task
from gradmarket.requester.store.session import ring
from gradmarket.requester.store.tables import Job, Replica, Task, Wave
from gradmarket.requester.store.transitions import move

TOPIC = "judge"


def ready(session: Session, now: float) -> Sequence[str]:
    silent = exists().where(Replica.task_id == Task.id, Replica.state == ReplicaState.COMMITTED)
    wanted = select(Task.id).where(Task.state == TaskState.REVEALING, (Task.due_at <= now) | ~silent)
    return session.scalars(wanted.order_by(Task.due_at).limit(256)).all()


def run(context: Context, task_id: str) -> float | None:
    with context.begin() as session:
        task = claimed_task(session, task_id)
        if task is None:
            return context.settings.sweep_s
        advance(context, session, task)
    return None


def advance(context: Context, session: Session, task: Task) -> None:
    """Judges the task if all is said or the time is over; whoever reveals last does so in the same transaction."""
    now = context.clock()
    if task.state != TaskState.REVEALING:
        return
    closed = and_(Wave.task_id == Replica.task_id, Wave.number == task.wave)  # at hand for who is crowned
    committed = select(Replica, Wave).join(Wave, closed).where(Replica.task_id == task.id)
    committed = committed.where(Replica.committed_at.is_not(None))
    replicas = {ReplicaId(replica.id): replica for replica, _wave in session.execute(committed)}
    if not _all_said(session, task, replicas, now):
        return
    ballots = {id_: _ballot(replica) for id_, replica in replicas.items()}
    judgement = voting.judge(exact.groups(ballots), len(replicas), Plan(**task.plan))
    _carry_out(context, session, task, replicas, judgement, now)


def _ballot(replica: Replica) -> Digest | None:
    return Digest(replica.root or "") if replica.state == ReplicaState.REVEALED else None


def _all_said(session: Session, task: Task, replicas: dict[ReplicaId, Replica], now: float) -> bool:
    """Whether nobody is waited for; after the deadline who has not revealed has withheld."""
    silent = [replica for replica in replicas.values() if replica.state == ReplicaState.COMMITTED]
    silent.sort(key=lambda replica: replica.worker)
    if silent and (task.due_at or 0) > now:
        return False
    for replica in silent:
        move(session, replica, ReplicaState.WITHHELD, reason="it did not reveal its commitment in time")
        strike(session, replica.worker)
        ring(session, worker_topic(replica.worker))
    return True


def _carry_out(
    context: Context,
    session: Session,
    task: Task,
    replicas: dict[ReplicaId, Replica],
    judgement: voting.Judgement,
    now: float,
) -> None:
    if isinstance(judgement, voting.Quorum):
        _crown(context, session, task, replicas, judgement, now)
    elif isinstance(judgement, voting.Another) and jobs.wants(session, session.get_one(Job, task.job_id), task.round):
        patience = now + task.offer["lease_seconds"] + task.offer["wave_seconds"]
        wave = {"wave": task.wave + 1, "wave_size": judgement.wave, "due_at": None, "patience_until": patience}
        move(session, task, TaskState.OPEN, **wave)
        tell(session, task.job_id, "split", now, task=task.id, committed=len(replicas), more=judgement.wave)
        ring(session, "assign")
    else:
        fail(context, session, task, "no quorum among those that the job may ask", now)


def _crown(
    context: Context,
    session: Session,
    task: Task,
    replicas: dict[ReplicaId, Replica],
    quorum: voting.Quorum,
    now: float,
) -> None:
    root = replicas[min(quorum.agreeing)].root
    rejected = [r for id_, r in replicas.items() if id_ not in quorum.agreeing and r.state == ReplicaState.REVEALED]
    reputations.outvoted(session, [r.operator for r in rejected], task.determinism_class or "", now)
    for id_, replica in replicas.items():
        if id_ in quorum.agreeing:
            verdicts.sign(context, session, task, replica, ReplicaState.AGREE, Outcome.ACCEPTED, root)
        elif replica.state == ReplicaState.REVEALED:
            reason = f"{len(quorum.agreeing)} of {len(replicas)} committed to another root than it did"
            verdicts.sign(context, session, task, replica, ReplicaState.REJECTED, Outcome.REJECTED, root, reason)
            named = {"task": task.id, "replica": id_, "worker": replica.worker}
            tell(session, task.job_id, "rejected", now, **named, reason=reason)
    seed = Hash(session.get_one(Wave, (task.id, task.wave)).seed)
    order = voting.upload_order(seed, {id_: replicas[id_].worker for id_ in quorum.agreeing})
    ask(session, task, replicas[order[0]], now, root=root)


def ask(session: Session, task: Task, uploader: Replica, now: float, root: str | None = None) -> None:
    """Asks one agreeing replica for the payload."""
    values = {"uploader": uploader.id, "due_at": now + task.offer["upload_seconds"]}
    if task.state == TaskState.UPLOADING:
        task.uploader, task.due_at = uploader.id, now + task.offer["upload_seconds"]
    else:
        move(session, task, TaskState.UPLOADING, root=root, **values)
    ring(session, worker_topic(uploader.worker))


def fail(context: Context, session: Session, task: Task, reason: str, now: float) -> None:
    """No verdict from this attempt: nobody is to blame, nobody is paid, and the task is tried again."""
    verdicts.inconclusive(context, session, task, reason)
    move(session, task, TaskState.FAILED, reason=reason, ended_at=now)
    tell(session, task.job_id, "task_failed", now, task=task.id, reason=reason)
    plan.reissue(context, session, session.get_one(Job, task.job_id), task, now)
