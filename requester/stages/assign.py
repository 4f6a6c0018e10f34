"""Open tasks meet asking workers: a replayable random draw among those who may, never first come first served."""

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from gradmarket.market.rules import assignment
from gradmarket.market.rules.assignment import Candidate
from gradmarket.market.rules.replication import fixed
from gradmarket.market.rules.secrets import tagged
from gradmarket.market.terms import Address, Hash, JobState, ReplicaState, TaskState, Units
from gradmarket.requester.bell import worker_topic
from gradmarket.requester.context import Context
from gradmarket.requester.store import jobs, progress, workers
from gradmarket.requester.store.locks import locked, locked_tasks, locked_workers, one_at_a_time
from gradmarket.requester.store.session import ring
from gradmarket.requester.store.tables import Job, Replica, Task, Worker
from gradmarket.requester.store.transitions import move

TOPIC = "assign"
TASKS_AT_ONCE = 64
LEASED = 0.0
DRAW = "draw"
"""All jobs draw from the same workers."""
HOLDS_A_PLACE = (ReplicaState.LEASED, ReplicaState.COMMITTED)


def ready(session: Session, now: float) -> Sequence[str]:
    """Running jobs with an open task, while anybody asks."""
    asks = exists().where(Worker.asking_until > now, Worker.capacity > 0)
    wants = exists().where(Task.job_id == Job.id, Task.state == TaskState.OPEN)
    return session.scalars(select(Job.id).where(Job.state == JobState.RUNNING, wants, asks)).all()


def run(context: Context, job_id: str) -> float | None:
    now = context.clock()
    with context.begin() as session:
        one_at_a_time(session, DRAW)
        job = locked(session, Job, job_id)
        if job.state != JobState.RUNNING:
            return None
        alive = [worker for worker in workers.live(session, now) if worker.strikes < context.settings.max_strikes]
        if not _settle_class(job, alive):
            return context.settings.sweep_s
        asking = [worker for worker in alive if _asks(worker, now)]
        pool = {c.party.worker: c for c in workers.candidates(session, job, asking)}
        others = _others(session, job, alive, pool)
        waits = []
        for task in _open(session, job_id):
            free = sum(candidate.capacity > 0 for candidate in pool.values())
            if not free:
                break
            waits.append(_fill(context, session, job, task, pool, free + others, now))
    return None if LEASED in waits else min(waits, default=context.settings.sweep_s)


def _open(session: Session, job_id: str) -> Sequence[Task]:
    """Later waves first: who committed to them waits, and can take nothing else meanwhile."""
    wanted = select(Task).where(Task.job_id == job_id, Task.state == TaskState.OPEN)
    return sorted(locked_tasks(session, wanted.limit(TASKS_AT_ONCE)), key=lambda task: task.wave, reverse=True)


def _settle_class(job: Job, alive: Sequence[Worker]) -> bool:
    """Whether the job has a determinism class to vote in; it takes the one with the most separate live workers."""
    spec = jobs.spec(job)
    present = [(w.determinism_class, workers.party(w)) for w in alive if w.determinism_class]
    leading = assignment.leading_class(present, spec.separation)
    own = [pair for pair in present if pair[0] == job.determinism_class]
    _, still = assignment.leading_class(own, spec.separation) or ("", 0)
    enough = spec.replication.replicas
    if still < fixed.quorum(enough) and leading is not None and leading[1] >= enough:
        job.determinism_class = leading[0]
    return job.determinism_class is not None


def _others(session: Session, job: Job, alive: Sequence[Worker], pool: dict[Address, Candidate]) -> int:
    """Live workers of the class that hold nothing and do not ask just now: a draw waits a moment for them."""
    busy = workers.in_flight(session, job.id)
    return sum(
        worker.determinism_class == job.determinism_class and worker.address not in pool and worker.address not in busy
        for worker in alive
    )


def _fill(
    context: Context, session: Session, job: Job, task: Task, pool: dict[Address, Candidate], idle: int, now: float
) -> float:
    """Draws workers for the task's open places (LEASED); or how long it waits for others to ask."""
    replicas = session.scalars(select(Replica).where(Replica.task_id == task.id)).all()
    places = task.wave_size - sum(r.wave == task.wave and r.state in HOLDS_A_PLACE for r in replicas)
    opening = progress.opening_for(session, job, task, context.settings.max_strikes)
    able = [candidate for candidate in pool.values() if assignment.why_not(candidate, opening) is None]
    if places > 0 and not able:
        return context.settings.sweep_s
    if places > 0 and (wait := _window(task, len(able), idle, now)) > 0:
        return wait
    seed = tagged("draw", Hash(task.secret), task.wave.to_bytes(8, "big"), len(replicas).to_bytes(8, "big"))
    drawn = assignment.draw(seed, able, opening, places)
    if not replicas and len(drawn) < places:
        return context.settings.sweep_s  # a task begins whole: who waits in half a wave is missing in another's split
    still = {w.address: w for w in locked_workers(session, (c.party.worker for c in drawn)) if _asks(w, now)}
    for candidate in drawn:
        if candidate.party.worker in still:
            _lease(session, task, still[candidate.party.worker], jobs.spec(job).deadlines.lease_s, now)
        pool[candidate.party.worker] = replace(
            candidate,
            capacity=candidate.capacity - 1,
            uncommitted=Units(candidate.uncommitted - task.offer["price"]),
        )
    if len(still) >= places:
        move(session, task, TaskState.COMMITTING, window_opened=None)
    return LEASED


def _window(task: Task, able: int, idle: int, now: float) -> float:
    """Seconds that the draw still waits: until every live idle worker asks, or the window is over."""
    if able >= idle:
        return 0.0
    if task.window_opened is None:
        task.window_opened = now
    return max(0.0, task.window_opened + assignment.window_s(idle) - now)


def _asks(worker: Worker, now: float) -> bool:
    return worker.asking_until > now and worker.capacity > 0


def _lease(session: Session, task: Task, worker: Worker, seconds: int, now: float) -> None:
    worker.capacity -= 1
    worker.fence += 1
    task.determinism_class = task.determinism_class or worker.determinism_class
    session.add(
        Replica(
            id=f"{task.id}-{worker.fence}-{worker.address[2:10].lower()}",
            task_id=task.id,
            job_id=task.job_id,
            worker=worker.address,
            payout=worker.payout,
            operator=worker.operator,
            network=worker.network,
            state=ReplicaState.LEASED,
            wave=task.wave,
            fence=worker.fence,
            leased_at=now,
            lease_until=now + seconds,
        )
    )
    task.patience_until = now + seconds + task.offer["wave_seconds"]
    ring(session, worker_topic(worker.address))
