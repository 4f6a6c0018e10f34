"""Open tasks meet asking workers: a replayable random draw among those who may, never first come first served."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from gradmarket.market.job import JobSpec
from gradmarket.market.rules import assignment, lifecycle
from gradmarket.market.rules import newcomers as rules
from gradmarket.market.rules.assignment import Candidate, Mixable, Opening, Party
from gradmarket.market.rules.replication import STRANGER, Lead, Plan
from gradmarket.market.rules.secrets import tagged
from gradmarket.market.terms import Address, Hash, JobState, ReplicaState, TaskState, Units
from gradmarket.requester.context import Context
from gradmarket.requester.notifier import worker_topic
from gradmarket.requester.store import ballots, jobs, lead_candidates, newcomers, progress, workers
from gradmarket.requester.store.locks import locked, locked_tasks, locked_workers
from gradmarket.requester.store.session import notify, one_at_a_time
from gradmarket.requester.store.tables import Job, Replica, Task, Worker
from gradmarket.requester.store.tasks import replicas_of
from gradmarket.requester.store.transitions import move

TOPIC = "assign"
TASKS_AT_ONCE = 64
DRAW = "draw"
"""All jobs draw from the same workers."""
SAMPLE = 8
"""Workers looked at for each that a quorum needs, before all are."""


def ready(session: Session, now: float) -> Sequence[str]:
    """Running jobs with an open task, while anybody asks."""
    asks = exists().where(workers.asks(now))
    wants = exists().where(Task.job_id == Job.id, Task.state == TaskState.OPEN)
    return session.scalars(select(Job.id).where(Job.state == JobState.RUNNING, wants, asks)).all()


def run(context: Context, job_id: str) -> float | None:
    now = context.clock()
    with context.begin() as session:
        one_at_a_time(session, DRAW)
        job = locked(session, Job, job_id)
        if job.state != JobState.RUNNING:
            return None
        mixable = ballots.mixable(session, job)
        if not _settle_class(session, job, mixable, now):
            return context.settings.sweep_s
        asking = workers.asking(session, job, now)
        if not asking:
            return _short_of_money(context, session, job, now)
        pool = CandidatePool(session, job, workers.candidates(session, job, asking, now), mixable, now)
        others = _others(session, job, mixable, now)
        free, wait = sum(c.capacity for c in pool.candidates.values()), context.settings.sweep_s
        for most in (min(2 * free, TASKS_AT_ONCE), TASKS_AT_ONCE):
            deals, wait = _deal(context, session, job, _open(session, job_id, most), pool, others, now)
            if deals:
                _hand_out(session, job, deals, now)
                return None
            if wait < context.settings.sweep_s:
                return wait
        return _short_of_money(context, session, job, now)


def _short_of_money(context: Context, session: Session, job: Job, now: float) -> float:
    """Nobody that has money in the job fills what is open: whoever is to get some next, the chain is told of."""
    if newcomers.next_covered(session, job, now):
        notify(session, "settle")
    return context.settings.sweep_s


def _open(session: Session, job_id: str, most: int) -> Sequence[Task]:
    """Later waves first: who committed to them waits, and can take nothing else meanwhile."""
    wanted = select(Task.id).where(Task.job_id == job_id, Task.state == TaskState.OPEN)
    order = (Task.round, Task.index, Task.attempt)
    split = wanted.where(Task.wave > 0).order_by(Task.wave.desc(), *order).limit(most).subquery()
    fresh = wanted.where(Task.wave == 0).order_by(*order).limit(most).subquery()
    either = select(split.c.id).union_all(select(fresh.c.id))
    tasks = [
        task for task in locked_tasks(session, select(Task).where(Task.id.in_(either))) if task.state == TaskState.OPEN
    ]
    return sorted(tasks, key=lambda task: -task.wave)[:most]


def _settle_class(session: Session, job: Job, mixable: Mixable, now: float) -> bool:
    """Whether the job has a determinism class to vote in; it takes the one with the most separate live workers.

    Those who delivered before decide it where they are enough: made-up identities of another class shut nobody out.
    As long as its own, with those beside it, still has a quorum of separate workers, nobody else is looked at.
    """
    spec = jobs.spec(job)
    plan = spec.plan()
    enough, quorum = plan.first_wave, plan.quorum
    beside = assignment.comparable(job.determinism_class or "", mixable)
    own = workers.present(job, now, beside)
    some = own.limit(SAMPLE * quorum)
    if job.determinism_class is not None and _separate(session, some, spec.separation, mixable)[1] >= quorum:
        return True
    present = workers.present(job, now)
    leading, most = _separate(session, present.where(Worker.accepted_at.is_not(None)), spec.separation, mixable)
    if most < enough:
        leading, most = _separate(session, present, spec.separation, mixable)
    without = job.determinism_class is None or _separate(session, own, spec.separation, mixable)[1] < quorum
    if without and most >= enough:
        job.determinism_class = leading
    return job.determinism_class is not None


def _separate(
    session: Session, present: workers.Present, separation: Sequence[str], mixable: Mixable
) -> tuple[str, int]:
    """The class with the most separate workers, and how many; `present` as of `workers.present`."""
    parties = ((row.determinism_class, workers.party(row)) for row in session.execute(present))
    return assignment.leading_class(parties, separation, mixable) or ("", 0)


def _others(session: Session, job: Job, mixable: Mixable, now: float) -> int:
    """Live workers of its classes that have money in it, hold nothing and do not ask just now: a draw waits a moment
    for them."""
    beside = assignment.comparable(job.determinism_class or "", mixable)
    silent = workers.present(job, now, beside).where(~workers.asks(now), workers.covered(job))
    busy = exists().where(
        Replica.worker == Worker.address, Replica.job_id == job.id, Replica.state.in_(lifecycle.IN_FLIGHT)
    )
    return session.scalar(select(func.count()).select_from(silent.where(~busy).subquery())) or 0


class CandidatePool:
    """Who asks, as it stands after what this pass has dealt out."""

    def __init__(self, session: Session, job: Job, asking: Sequence[Candidate], mixable: Mixable, now: float) -> None:
        self.mixable = mixable
        self.candidates = {candidate.party.worker: candidate for candidate in asking}
        self._known: list[Party] = []
        self._trials = len(asking)
        if not all(candidate.known for candidate in asking):
            self._known = newcomers.present(session, job, mixable, now)
            self._trials = rules.at_once(newcomers.tried(session, job, now)) - newcomers.in_flight(session, job)
        self._gain = jobs.spec(job).gain
        self._leads: dict[Address, Lead] = {}
        if self._gain is not None:
            self._leads = lead_candidates.leads(session, job, asking, self._gain, now)

    def lead(self, candidate: Candidate) -> Lead:
        return self._leads.get(candidate.party.worker, STRANGER)

    def able(self, seed: Hash, opening: Opening, places: int) -> list[Candidate]:
        """Who may take one of the places; of newcomers a few, where others suffice once they are free."""
        able = {c.party.worker: c for c in self.candidates.values() if assignment.why_not(c, opening) is None}
        if not rules.suffice(self._known, opening, places):
            return list(able.values())
        order = [able[worker] for worker in assignment.draw_order(seed, able)]
        new = [candidate for candidate in order if not candidate.known][: max(0, self._trials)]
        return [candidate for candidate in order if candidate.known or candidate in new]

    def lease(self, candidate: Candidate, task: Task) -> None:
        """The candidate has one more."""
        self._trials -= not candidate.known
        left = Units(candidate.uncommitted - task.offer["price"])
        worker = candidate.party.worker
        self.candidates[worker] = replace(candidate, capacity=candidate.capacity - 1, uncommitted=left)
        if self._gain is not None:
            self._leads[worker] = lead_candidates.after(self.lead(candidate), self._gain)


@dataclass(frozen=True)
class Deal:
    """Who was drawn for the open places of a task; `plan` where who was drawn first decides how it is checked."""

    task: Task
    places: int
    drawn: list[Candidate]
    plan: Plan | None = None


def _deal(
    context: Context,
    session: Session,
    job: Job,
    tasks: Sequence[Task],
    pool: CandidatePool,
    others: int,
    now: float,
) -> tuple[list[Deal], float]:
    """Draws for one task after the other, out of a pool that grows smaller; and how long the rest waits."""
    deals, wait = [], context.settings.sweep_s
    tried = replicas_of(session, tasks)
    for task in tasks:
        free = sum(candidate.capacity > 0 for candidate in pool.candidates.values())
        if not free:
            break
        found = _draw(context, job, task, tried[task.id], pool, free + others, now)
        if isinstance(found, Deal):
            deals.append(found)
            for candidate in found.drawn:
                pool.lease(candidate, task)
        else:
            wait = min(wait, found)
    return deals, wait


def _draw(
    context: Context,
    job: Job,
    task: Task,
    replicas: Sequence[Replica],
    pool: CandidatePool,
    idle: int,
    now: float,
) -> Deal | float:
    """Draws workers for the task's open places; or says how long it waits for others to ask."""
    places = progress.missing(task, replicas)
    opening = progress.opening_for(job, task, replicas, pool.mixable)
    seed = tagged("draw", Hash(task.secret), task.wave.to_bytes(8, "big"), len(replicas).to_bytes(8, "big"))
    able = pool.able(seed, opening, places)
    if places > 0 and not able:
        return context.settings.sweep_s
    if places > 0 and (wait := _window(task, len(able), idle, now)) > 0:
        return wait
    spec = jobs.spec(job)
    if spec.gain is not None and task.wave == 0 and not any(r.state in progress.HOLDS_A_PLACE for r in replicas):
        return _begin(spec, task, seed, able, opening, pool) or context.settings.sweep_s
    drawn = assignment.draw(seed, able, opening, places)
    if not replicas and len(drawn) < places:
        return context.settings.sweep_s  # a task begins whole: who waits in half a wave is missing in another's split
    return Deal(task, places, drawn)


def _begin(
    spec: JobSpec, task: Task, seed: Hash, able: Sequence[Candidate], opening: Opening, pool: CandidatePool
) -> Deal | None:
    """The first in the draw's order leads, and decides the plan; another where too few are there for its plan.

    Whoever gives a lease back takes its plan with it: who is drawn next is not checked by another's record.
    """
    too_many = len(able) + 1
    for worker in assignment.draw_order(seed, [candidate.party.worker for candidate in able]):
        lead = pool.candidates[worker]
        plan = spec.plan(pool.lead(lead))
        if plan.first_wave >= too_many:
            continue
        at_work = (*opening.at_work, lead.determinism_class)
        beside = replace(opening, parties=(*opening.parties, lead.party), at_work=at_work)
        others = assignment.draw(seed, able, beside, plan.first_wave - 1)
        if len(others) == plan.first_wave - 1:
            return Deal(task, plan.first_wave, [lead, *others], plan)
        too_many = plan.first_wave
    return None


def _hand_out(session: Session, job: Job, deals: Sequence[Deal], now: float) -> None:
    """Leases for who still asks, now that its row is held."""
    named = {candidate.party.worker for deal in deals for candidate in deal.drawn}
    held = {worker.address: worker for worker in locked_workers(session, named)}
    for deal in deals:
        task, lease_s = deal.task, jobs.spec(job).deadlines.lease_s
        drawn = [(held[candidate.party.worker], candidate.determinism_class) for candidate in deal.drawn]
        given = [worker for worker, name in drawn if _asks(worker, now) and worker.determinism_class == name]
        for worker in given:
            _lease(session, task, worker, lease_s, now)
        begun = {"patience_until": now + lease_s + task.offer["wave_seconds"]} if given else {}
        if given and task.determinism_class is None:
            begun["determinism_class"] = given[0].determinism_class
        if given and deal.plan is not None:
            begun |= {"plan": asdict(deal.plan), "wave_size": deal.plan.first_wave}
        if len(given) >= deal.places:
            move(task, TaskState.COMMITTING, window_opened=None, **begun)
        else:
            for name, value in begun.items():
                setattr(task, name, value)


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
            determinism_class=worker.determinism_class,
        )
    )
    notify(session, worker_topic(worker.address))
